// The proof that two agents know the same secret, without sending it, and the seal on what they say
// to each other afterwards. The cryptography is libsodium's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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

/// One direction of a connection: each line carries the HMAC of its place and its text, so that
/// none can be made, changed, repeated, left out or sent back by who does not know the key.
class LineSeal {
 public:
  explicit LineSeal(std::string key) : key_(std::move(key)) {}
  /// The next line to send.
  std::string seal(std::string_view line);
  /// What the next line that came says; nothing where its seal is wrong.
  std::optional<std::string_view> open(std::string_view sealed);

 private:
  std::string mark(std::string_view line);

  std::string key_;
  uint64_t count_ = 0;
};

}  // namespace lockstep::launch
