// Regular expressions over parameter names, as used in configuration keys.
#pragma once

#include <regex>
#include <span>
#include <string>

namespace lockstep {

/// Compiles the regular expression (ECMAScript) in a configuration key. Throws Error (config) with
/// the key if it is invalid.
std::regex parse_regex(const std::string& key, const std::string& text);

/// Regular expression (ECMAScript) that matches anywhere in a name; anchor with "^" and "$".
/// Thread-safe.
class NamePattern {
 public:
  /// Compiles the expression. Throws the errors of parse_regex().
  NamePattern(std::string key, std::string text);

  const std::string& text() const { return text_; }
  bool is_in(const std::string& name) const { return std::regex_search(name, expression_); }
  /// Throws Error (config) with examples of the names if none of them matches.
  void check_found_in(std::span<const std::string> names) const;

 private:
  std::string key_, text_;
  std::regex expression_;
};

}  // namespace lockstep
