// Generates stories about people who carry things from place to place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

struct StoryQuestion {
  std::string question, answer;
};

/// A story. People keep their names, pronouns, trades and possessions, and things stay where they
/// were left. Each question therefore has one correct answer, which is only in the story.
struct Story {
  std::string text;  // paragraphs of complete sentences, one per line, without the questions
  std::vector<StoryQuestion> questions;
};

/// Returns a story with `events` events, at least 1.
Story tell_story(uint64_t key, int64_t events);

}  // namespace lockstep::data
