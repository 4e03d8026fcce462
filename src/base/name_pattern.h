// Regular expressions over the names of parameters, as keys of the configuration have them.
#pragma once

#include <regex>
#include <span>
#include <string>

namespace lockstep {

/// A key's regular expression, in ECMAScript's grammar. Error (config) that names the key where the
/// text is none.
std::regex parse_regex(const std::string& key, const std::string& text);

/// A regular expression (ECMAScript's grammar) that is looked for at any place of a name, so that
/// "^" and "$" say where. Pure, thread-safe.
class NamePattern {
 public:
  /// Error as parse_regex.
  NamePattern(std::string key, std::string text);

  const std::string& text() const { return text_; }
  bool is_in(const std::string& name) const { return std::regex_search(name, expression_); }
  /// Error (config) that shows some of the names, where it is found in none of them.
  void check_found_in(std::span<const std::string> names) const;

 private:
  std::string key_, text_;
  std::regex expression_;
};

}  // namespace lockstep
