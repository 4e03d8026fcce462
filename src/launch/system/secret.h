// Proves that two agents know the same secret without sending it, and seals their later messages.
// Uses libsodium.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

using Sha256 = std::array<uint8_t, 32>;
/// Returns the SHA-256 (FIPS 180-4).
Sha256 sha256(std::string_view text);
/// Returns HMAC-SHA-256 (RFC 2104) as 64 hexadecimal digits.
std::string hmac_hex(std::string_view key, std::string_view text);
/// Compares two strings in constant time.
bool equal_in_constant_time(std::string_view a, std::string_view b);
/// Returns 32 random bytes from the kernel as 64 hexadecimal digits.
std::string random_hex();

/// Seals the lines of one direction of a connection. Each line carries an HMAC of its sequence
/// number and of its text's SHA-256. Without the key, no line can be forged, changed, replayed,
/// dropped or reflected. The text is hashed separately, so that a message to thousands of peers is
/// hashed only once.
class LineSeal {
 public:
  explicit LineSeal(std::string key) : key_(std::move(key)) {}
  /// Returns the next line to send, with its seal.
  std::string seal(std::string_view line);
  /// Returns the seal of the next line to send, whose text has this SHA-256.
  std::string prefix(const Sha256& text);
  /// Returns the text of the next received line, or nullopt if its seal is wrong.
  std::optional<std::string_view> open(std::string_view sealed);

 private:
  std::string mark(const Sha256& text);

  std::string key_;
  uint64_t count_ = 0;
};

}  // namespace lockstep::launch
