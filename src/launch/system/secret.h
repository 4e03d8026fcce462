// The proof that two agents know the same secret, without sending it, and the seal on what they say
// to each other afterwards. The cryptography is libsodium's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

using Sha256 = std::array<uint8_t, 32>;
/// SHA-256 (FIPS 180-4).
Sha256 sha256(std::string_view text);
/// HMAC-SHA-256 (RFC 2104), as 64 hexadecimal digits.
std::string hmac_hex(std::string_view key, std::string_view text);
/// Compares in a time that does not depend on where the two differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);
/// 32 random bytes from the kernel, as 64 hexadecimal digits.
std::string random_hex();

/// One direction of a connection: each line carries the HMAC of its place and of its text's
/// SHA-256, so that none can be made, changed, repeated, left out or sent back by who does not know
/// the key. A text that goes to thousands is read once for all of their seals.
class LineSeal {
 public:
  explicit LineSeal(std::string key) : key_(std::move(key)) {}
  /// The next line to send.
  std::string seal(std::string_view line);
  /// What stands before the next line to send, whose text has this SHA-256.
  std::string prefix(const Sha256& text);
  /// What the next line that came says; nothing where its seal is wrong.
  std::optional<std::string_view> open(std::string_view sealed);

 private:
  std::string mark(const Sha256& text);

  std::string key_;
  uint64_t count_ = 0;
};

}  // namespace lockstep::launch
