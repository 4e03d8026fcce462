// Finds positions at which text can be cut safely.
#include "data/text_cut.h"

#include <array>

namespace lockstep::data {
namespace {

bool is_ascii_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

/// Returns true if `text` starts with a white-space code point, or if it is empty and one might
/// follow.
bool space_begins(std::string_view text) {
  static constexpr std::array<std::string_view, 7> kWide{
      "\xC2\x85",
      "\xC2\xA0",
      "\xE1\x9A\x80",
      "\xE2\x80\xA8",
      "\xE2\x80\xA9",
      "\xE2\x80\xAF",
      "\xE3\x80\x80"};
  if (text.empty() || is_ascii_space(text[0])) {
    return true;
  }
  if (static_cast<unsigned char>(text[0]) < 0x80) {
    return false;
  }
  for (const std::string_view wide : kWide) {
    if (text.starts_with(wide)) {
      return true;
    }
  }
  if (text.starts_with("\xE2\x81\x9F")) {
    return true;
  }
  return text.size() >= 3 && text.starts_with("\xE2\x80") &&
         static_cast<unsigned char>(text[2]) <= 0x8A;  // U+2000 to U+200A
}

bool space_ends(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && text.size() - begin < 3 && continues(text[begin - 1])) {
    --begin;
  }
  return begin == 0 || space_begins(text.substr(begin - 1));
}

}  // namespace

bool is_blank(std::string_view text) {
  for (const char c : text) {
    if (!is_ascii_space(c)) {
      return false;
    }
  }
  return true;
}

size_t find_cut(std::string_view text) {
  const size_t least = text.size() / 2;
  for (size_t at = text.size() - 1; at > least; --at) {
    if (text[at] == ' ' && !space_begins(text.substr(at + 1))) {
      return at;
    }
  }
  for (size_t at = text.size() - 1; at > least && at >= 2; --at) {
    // A slash may belong to the newline before it (o200k's pattern).
    if (text[at - 1] == '\n' && text[at] != '/' && !space_begins(text.substr(at)) &&
        !space_ends(text.substr(0, at - 1))) {
      return at;
    }
  }
  size_t at = text.size() - 1;
  while (at > 1 && text.size() - at < 4 && continues(text[at])) {
    --at;
  }
  return at == 0 ? 1 : at;
}

}  // namespace lockstep::data
