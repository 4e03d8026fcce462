// Counter-based random numbers. A (key, counter) pair gives the same number on every rank, thread
// and machine. Used for initial weights, dropout masks and shuffles so that they do not depend on
// the plan.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// Finalizer of splitmix64 (Steele, Lea and Flood, 2014), a bijection of 64-bit words.
constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// Derives a stream key from another key and a number (a layer, a step, the hash of a name).
constexpr uint64_t derive_key(uint64_t key, uint64_t part) {
  return mix_bits(key + 0x9e3779b97f4a7c15ULL * (part + 1));
}

/// Returns the FNV-1a hash of a name for derive_key().
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

/// Returns 64 random bits for a counter in the stream of `key`.
constexpr uint64_t random_bits(uint64_t key, uint64_t counter) {
  return mix_bits(mix_bits(counter + 0x9e3779b97f4a7c15ULL) ^ key);
}

/// Returns a uniform number in [0, 1) with 24 bits.
constexpr float random_uniform(uint64_t key, uint64_t counter) {
  return static_cast<float>(random_bits(key, counter) >> 40) * 0x1.0p-24F;
}

}  // namespace lockstep
