// Stories about people who carry things from place to place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

struct StoryQuestion {
  std::string question, answer;
};

/// One story. Its people keep their names, pronouns, trades and possessions, and things stay where
/// they were left, so the questions have one right answer each, which only the story tells.
struct Story {
  std::string text;  // paragraphs of whole sentences, one a line; without the questions
  std::vector<StoryQuestion> questions;
};

/// `events` is how much happens, 1 or more.
Story tell_story(uint64_t key, int64_t events);

}  // namespace lockstep::data
