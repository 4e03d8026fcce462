// GPT-2's byte alphabet: one printable character per byte, so that any sequence of bytes has a
// string form. Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF map to themselves, the other 68 bytes to
// U+0100, U+0101, ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::text {

/// Returns the character of a byte, U+0021 to U+0143.
char32_t byte_to_character(uint8_t byte);
/// Returns the byte of a character, or -1 if it is not in the alphabet.
int character_to_byte(char32_t character);

/// Returns the characters of `bytes` in UTF-8.
std::string bytes_to_alphabet(std::string_view bytes);
/// Returns the bytes of a token in valid UTF-8, or nullopt if a character is not in the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view token);

}  // namespace lockstep::text
