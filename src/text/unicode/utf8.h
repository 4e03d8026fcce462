// UTF-8: reading valid text, writing it, and replacing what is invalid as Rust, Python and the
// WHATWG do (one U+FFFD for each maximal part of an ill-formed sequence; Unicode 16, section 3.9,
// table 3-8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

/// Whether a byte stands inside a code point, not at its start.
inline bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// The bytes of the code point that begins with `lead`, in valid UTF-8; 1 for a byte that stands
/// inside one.
inline size_t code_point_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The code point at `at`; `at` must be the first byte of one, in valid UTF-8.
inline char32_t code_point_at(const char* at) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(at);
  if (bytes[0] < 0x80) {
    return bytes[0];
  }
  if (bytes[0] < 0xE0) {
    return static_cast<char32_t>((bytes[0] & 0x1F) << 6 | (bytes[1] & 0x3F));
  }
  if (bytes[0] < 0xF0) {
    return static_cast<char32_t>(
        (bytes[0] & 0x0F) << 12 | (bytes[1] & 0x3F) << 6 | (bytes[2] & 0x3F));
  }
  return static_cast<char32_t>(
      (bytes[0] & 0x07) << 18 | (bytes[1] & 0x3F) << 12 | (bytes[2] & 0x3F) << 6 |
      (bytes[3] & 0x3F));
}

/// The start of the code point that ends just before `at`; valid UTF-8, begin < at. Never before
/// `begin`.
inline const char* previous_code_point(const char* begin, const char* at) {
  do {
    --at;
  } while (at > begin && is_continuation(*at));
  return at;
}

void append_code_point(std::string& text, char32_t code_point);
std::string to_utf8(std::u32string_view code_points);
/// The code points of valid UTF-8.
std::u32string to_code_points(std::string_view text);
size_t count_code_points(std::string_view text);

/// How many bytes from the start of `text` are valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);
/// `text` with each ill-formed part replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

/// What stands at the start of a text that is not valid there.
struct IllFormed {
  size_t length;    // the bytes that one U+FFFD stands for; at least 1
  bool incomplete;  // the text ends in the middle of a sequence that later bytes could complete
};
/// `text` is not empty and its first code point is not valid.
IllFormed ill_formed_at_start(std::string_view text);

}  // namespace lockstep::text
