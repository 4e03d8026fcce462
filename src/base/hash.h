// XXH3-128 hash for content keys and checkpoint chunks. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Incremental XXH3-128 hash. hex() returns 32 lower-case digits in canonical (big-endian) order.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void update(std::span<const std::byte> bytes);
  /// Adds a string and its length, so that ("ab", "c") and ("a", "bc") differ.
  void update_field(std::string_view text);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the XXH3-64 hash. Used to compare bytes that should be equal.
uint64_t hash_64(std::span<const std::byte> bytes);
std::string hash_hex(std::span<const std::byte> bytes);
std::string hash_hex(std::string_view text);

}  // namespace lockstep
