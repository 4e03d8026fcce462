// Small things that are done to names and words of ASCII.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep {

/// Whether it is one of 0 to 9, whatever the locale.
constexpr bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

/// A to Z become a to z; every other byte stays, so that UTF-8 stays UTF-8.
constexpr char lower_case(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}
inline std::string lower_case(std::string text) {
  for (char& letter : text) {
    letter = lower_case(letter);
  }
  return text;
}

inline bool mentions(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// "nproc_per_node" as "nproc-per-node".
inline std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace lockstep
