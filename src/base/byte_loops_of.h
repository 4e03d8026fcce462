// Byte loops, compiled in byte_loops.cpp and, with AVX2, in byte_loops_avx2.cpp.
#pragma once

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/byte_loops.h"

namespace lockstep {
namespace {

uint64_t hash(const std::byte* bytes, size_t count) {
  return XXH3_64bits(bytes, count);
}

void add_pages(
    const std::byte* bytes,
    size_t count,
    size_t page_bytes,
    uint64_t first,
    uint64_t& high,
    uint64_t& low) {
  for (size_t at = 0; at < count; at += page_bytes) {
    const size_t page = count - at < page_bytes ? count - at : page_bytes;
    const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes + at, page, first++);
    high += hash.high64;
    low += hash.low64;
  }
}

template <class Bits>
bool copy_of(std::byte* to, const std::byte* from, size_t count, Bits exponent) {
  constexpr size_t kLine = 64;
  // The loops are limited by memory bandwidth and therefore prefetch. A prefetch past the end of
  // the data has no effect.
  constexpr size_t kAhead = 1024;
#if defined(__AVX2__)
  constexpr size_t kVector = 32;
#else
  constexpr size_t kVector = 16;
#endif
  typedef Bits Vector __attribute__((vector_size(kVector)));
  const Vector all = exponent - Vector{};
  Vector found{};
  size_t at = 0;
  for (; at + kLine <= count; at += kLine) {
    __builtin_prefetch(from + at + kAhead);
    for (size_t part = at; part < at + kLine; part += kVector) {
      Vector numbers;
      std::memcpy(&numbers, from + part, kVector);
      std::memcpy(to + part, &numbers, kVector);
      found |= reinterpret_cast<Vector>((numbers & all) == all);
    }
  }
  bool is_finite = true;
  for (size_t i = 0; i < kVector / sizeof(Bits); ++i) {
    is_finite = is_finite && found[i] == 0;
  }
  for (; at < count; at += sizeof(Bits)) {
    Bits number;
    std::memcpy(&number, from + at, sizeof(Bits));
    std::memcpy(to + at, &number, sizeof(Bits));
    is_finite = is_finite && (number & exponent) != exponent;
  }
  return is_finite;
}

bool copy_numbers(std::byte* to, const std::byte* from, size_t count, Exponent exponent) {
  switch (exponent.number_bytes) {
    case 2:
      return copy_of(to, from, count, static_cast<uint16_t>(exponent.bits));
    case 4:
      return copy_of(to, from, count, static_cast<uint32_t>(exponent.bits));
    default:
      return copy_of(to, from, count, exponent.bits);
  }
}

constexpr ByteLoops kLoops{hash, add_pages, copy_numbers};

}  // namespace
}  // namespace lockstep
