// Helpers for ASCII text.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep {

/// Returns true for 0 to 9, independent of the locale.
constexpr bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

/// Converts A to Z to lower case. Other bytes are not changed, so UTF-8 stays valid.
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

/// Converts "nproc_per_node" to "nproc-per-node".
inline std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace lockstep
