// GPT-2's alphabet: a printable character for each byte, so that a token of any bytes is a string
// (spec: bytes 0x21-0x7E, 0xA1-0xAC, 0xAE-0xFF stand for themselves, the other 68 for U+0100,
// U+0101, ...).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::text {

/// The character of a byte, U+0021 to U+0143.
char32_t byte_to_character(uint8_t byte);
/// The byte of a character, or -1 where it is not in the alphabet.
int character_to_byte(char32_t character);

/// Each byte as its character, in UTF-8.
std::string bytes_to_alphabet(std::string_view bytes);
/// The bytes of a token, or nothing where one of its characters is not in the alphabet. Valid
/// UTF-8.
std::optional<std::string> alphabet_to_bytes(std::string_view token);

}  // namespace lockstep::text
