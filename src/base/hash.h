// XXH3-128, for content keys and checkpoint chunks. Not for secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// A running XXH3-128; hex() is 32 lower-case digits, the canonical (big-endian) form.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void update(std::span<const std::byte> bytes);
  /// The text and its length, so that ("ab", "c") and ("a", "bc") differ.
  void update_field(std::string_view text);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-64: to compare bytes that should be the same.
uint64_t hash_64(std::span<const std::byte> bytes);
std::string hash_hex(std::span<const std::byte> bytes);
std::string hash_hex(std::string_view text);

}  // namespace lockstep
