// Sum, maximum and minimum of arrays in memory, in rank order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include <c10/core/ScalarType.h>

namespace lockstep::comm {

enum class Reduce { kSum, kMax, kMin };

/// Receives elements [begin, end) of a result immediately after they were computed, while they are
/// in a cache.
using ResultReader = std::function<void(int64_t begin, int64_t end)>;

/// Returns true for 16-, 32- and 64-bit floating-point types, 32- and 64-bit integers, and bytes.
bool can_reduce(at::ScalarType type);

/// Computes out[i] = parts[0][i] + parts[1][i] + ... (or the maximum or minimum) for n elements of
/// `type`. bfloat16 and float16 are added in float32 and rounded once. `out` may be one of the
/// parts. Throws Error (internal) if the type cannot be reduced.
void reduce_parts(
    at::ScalarType type, Reduce reduce, std::span<const void* const> parts, int64_t n, void* out);

}  // namespace lockstep::comm
