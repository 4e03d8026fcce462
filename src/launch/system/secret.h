// Proof that two agents share a secret, without sending it, and seals for their later messages. The
// cryptography is libsodium's.
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
/// Compares in constant time.
bool equal_in_constant_time(std::string_view a, std::string_view b);
/// 32 random bytes from the kernel, as 64 hexadecimal digits.
std::string random_hex();

/// One direction of a connection: each line carries an HMAC of its sequence number and its text's
/// SHA-256, so that without the key no line can be forged, changed, replayed, dropped or reflected.
/// A message to thousands of peers is hashed once.
class LineSeal {
 public:
  explicit LineSeal(std::string key) : key_(std::move(key)) {}
  /// The next line to send.
  std::string seal(std::string_view line);
  /// Returns the seal of the next line to send, whose text has this SHA-256.
  std::string prefix(const Sha256& text);
  /// Returns the text of the next received line; nullopt if its seal is wrong.
  std::optional<std::string_view> open(std::string_view sealed);

 private:
  std::string mark(const Sha256& text);

  std::string key_;
  uint64_t count_ = 0;
};

}  // namespace lockstep::launch
