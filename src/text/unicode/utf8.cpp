// Implements UTF-8 decoding, encoding and validation.
#include "text/unicode/utf8.h"

#include <algorithm>
#include <cstring>

namespace lockstep::text {
namespace {

/// Valid sequences for a lead byte (Unicode 16, table 3-7): length, and bounds of the second byte.
struct ByteSequence {
  size_t length;  // 0 if no sequence starts with this byte
  unsigned char low, high;
};

ByteSequence sequence_of(unsigned char lead) {
  if (lead < 0x80) {
    return {1, 0, 0};
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return {0, 0, 0};
  }
  if (lead < 0xE0) {
    return {2, 0x80, 0xBF};
  }
  if (lead < 0xF0) {
    return {
        3,
        static_cast<unsigned char>(lead == 0xE0 ? 0xA0 : 0x80),
        static_cast<unsigned char>(lead == 0xED ? 0x9F : 0xBF)};
  }
  return {
      4,
      static_cast<unsigned char>(lead == 0xF0 ? 0x90 : 0x80),
      static_cast<unsigned char>(lead == 0xF4 ? 0x8F : 0xBF)};
}

/// Returns the number of valid bytes, up to `sequence.length`, at the start of `text`.
size_t matching_bytes(const ByteSequence& sequence, std::string_view text) {
  const size_t limit = std::min(sequence.length, text.size());
  size_t matched = 1;
  while (matched < limit) {
    const auto byte = static_cast<unsigned char>(text[matched]);
    const bool fits =
        matched == 1 ? byte >= sequence.low && byte <= sequence.high : (byte & 0xC0) == 0x80;
    if (!fits) {
      break;
    }
    ++matched;
  }
  return matched;
}

}  // namespace

void append_code_point(std::string& text, char32_t code_point) {
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    text.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    text.append({static_cast<char>(0xC0 | code_point >> 6), tail(0)});
  } else if (code_point < 0x10000) {
    text.append({static_cast<char>(0xE0 | code_point >> 12), tail(6), tail(0)});
  } else {
    text.append({static_cast<char>(0xF0 | code_point >> 18), tail(12), tail(6), tail(0)});
  }
}

std::string to_utf8(std::u32string_view code_points) {
  std::string text;
  text.reserve(code_points.size());
  for (const char32_t code_point : code_points) {
    append_code_point(text, code_point);
  }
  return text;
}

std::u32string to_code_points(std::string_view text) {
  std::u32string code_points;
  code_points.reserve(text.size());
  for (size_t at = 0; at < text.size(); at += code_point_length(text[at])) {
    code_points.push_back(code_point_at(text.data() + at));
  }
  return code_points;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    while (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080ULL) != 0) {
        break;
      }
      at += sizeof(word);
    }
    if (at >= text.size()) {
      break;
    }
    const ByteSequence sequence = sequence_of(static_cast<unsigned char>(text[at]));
    if (sequence.length == 0 || matching_bytes(sequence, text.substr(at)) != sequence.length) {
      return at;
    }
    at += sequence.length;
  }
  return text.size();
}

IllFormed ill_formed_at_start(std::string_view text) {
  const ByteSequence sequence = sequence_of(static_cast<unsigned char>(text[0]));
  if (sequence.length == 0) {
    return {1, false};
  }
  const size_t matched = matching_bytes(sequence, text);
  return {matched, matched == text.size()};
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const size_t good = valid_utf8_prefix(text);
    valid.append(text.substr(0, good));
    text.remove_prefix(good);
    if (!text.empty()) {
      valid.append(kReplacementCharacter);
      text.remove_prefix(ill_formed_at_start(text).length);
    }
  }
  return valid;
}

}  // namespace lockstep::text
