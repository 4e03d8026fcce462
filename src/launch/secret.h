// The proof that two agents know the same secret, without sending it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// SHA-256 (FIPS 180-4).
std::array<uint8_t, 32> sha256(std::string_view text);
/// HMAC-SHA-256 (RFC 2104), as 64 hexadecimal digits.
std::string hmac_hex(std::string_view key, std::string_view text);
/// Compares in a time that does not depend on where the two differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);
/// 32 random bytes from the kernel, as 64 hexadecimal digits.
std::string random_hex();

}  // namespace lockstep::launch
