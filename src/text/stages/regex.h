// Regular expressions that have no scanner of ours, by PCRE2 under limits: a pattern that would
// take too long is an Error, never a wrong answer.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/stages/matches.h"

namespace lockstep::text {

/// A compiled pattern in Oniguruma's syntax, as tokenizer.json holds it. Thread-safe. Matching is
/// bounded by PCRE2's own limits, and by the processor's time: a second, and one more for each
/// megabyte.
class Regex {
 public:
  /// `place` (file and key) is named by the Error of a pattern that does not compile.
  Regex(const std::string& pattern, std::string place);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// Valid UTF-8, not empty.
  std::vector<Match> matches(std::string_view text) const;

 private:
  struct Code;
  class Search;
  [[noreturn]] void too_long(const std::string& reason) const;
  std::unique_ptr<Code> code_;
  std::string pattern_, place_;
};

}  // namespace lockstep::text
