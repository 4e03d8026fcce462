// Converts between bytes and the characters of GPT-2's byte alphabet.
#include "text/unicode/byte_alphabet.h"

#include <array>

#include "text/unicode/utf8.h"

namespace lockstep::text {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char16_t, 256> character{};
  std::array<int16_t, 324> byte{};
  constexpr Alphabet() {
    byte.fill(-1);
    char16_t next = 0x100;
    for (int i = 0; i < 256; ++i) {
      const char16_t c = stands_for_itself(i) ? static_cast<char16_t>(i) : next++;
      character[static_cast<size_t>(i)] = c;
      byte[c] = static_cast<int16_t>(i);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t byte_to_character(uint8_t byte) {
  return kAlphabet.character[byte];
}

int character_to_byte(char32_t character) {
  return character < kAlphabet.byte.size() ? kAlphabet.byte[character] : -1;
}

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string token;
  token.reserve(bytes.size() * 2);
  for (const char byte : bytes) {
    append_code_point(token, byte_to_character(static_cast<uint8_t>(byte)));
  }
  return token;
}

std::optional<std::string> alphabet_to_bytes(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size(); at += code_point_length(token[at])) {
    const int byte = character_to_byte(code_point_at(token.data() + at));
    if (byte < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

}  // namespace lockstep::text
