// Regular expressions without a hand-written scanner, matched by PCRE2 under limits. Exceeding the
// time limit throws an Error.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/stages/matches.h"

namespace lockstep::text {

/// Compiled pattern in Oniguruma syntax, as in tokenizer.json. Thread-safe. Matching is limited by
/// PCRE2's limits and to a CPU time of one second plus one second per megabyte.
class Regex {
 public:
  /// Compiles the pattern. Throws Error with `place` (file and key) if it is invalid.
  Regex(const std::string& pattern, std::string place);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// Returns the matches and the text between them. `text` must be non-empty, valid UTF-8.
  std::vector<Match> matches(std::string_view text) const;

 private:
  struct Code;
  class Search;
  [[noreturn]] void too_long(const std::string& reason) const;
  std::unique_ptr<Code> code_;
  std::string pattern_, place_;
};

}  // namespace lockstep::text
