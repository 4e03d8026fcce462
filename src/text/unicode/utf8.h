// UTF-8 reading, writing and repair. Repair replaces each maximal subpart of an ill-formed sequence
// with one U+FFFD, as Rust, Python and the WHATWG do (Unicode 16, section 3.9, table 3-8).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

/// Returns true for a continuation byte.
inline bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Returns the length in bytes of the code point that starts with `lead`. Returns 1 for a
/// continuation byte.
inline size_t code_point_length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// Returns the code point whose first byte is at `at`, in valid UTF-8.
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

/// Returns the start of the code point that ends at `at`, no earlier than `begin`. Requires valid
/// UTF-8 and begin < at.
inline const char* previous_code_point(const char* begin, const char* at) {
  do {
    --at;
  } while (at > begin && is_continuation(*at));
  return at;
}

void append_code_point(std::string& text, char32_t code_point);
std::string to_utf8(std::u32string_view code_points);
/// Convert and count code points in valid UTF-8.
std::u32string to_code_points(std::string_view text);
size_t count_code_points(std::string_view text);

/// Returns the length in bytes of the longest valid UTF-8 prefix of `text`.
size_t valid_utf8_prefix(std::string_view text);
/// Returns `text` with each ill-formed sequence replaced with U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

/// Ill-formed sequence at the start of text.
struct IllFormed {
  size_t length;    // number of bytes replaced by one U+FFFD; at least 1
  bool incomplete;  // text ends within a sequence that more bytes could complete
};
/// Describes the ill-formed sequence at the start of `text`, which must be non-empty.
IllFormed ill_formed_at_start(std::string_view text);

}  // namespace lockstep::text
