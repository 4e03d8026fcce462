// Stories about people who carry things from place to place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

struct StoryQuestion {
  std::string question, answer;
};

/// One story. People keep their names, pronouns, trades and possessions, and things stay where they
/// were left, so each question has one right answer, which only the story contains.
struct Story {
  std::string text;  // paragraphs of complete sentences, one per line; without the questions
  std::vector<StoryQuestion> questions;
};

/// `events`: number of events, at least 1.
Story tell_story(uint64_t key, int64_t events);

}  // namespace lockstep::data
