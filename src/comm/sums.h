// Sums, maxima and minima of parts that lie in memory, in the order of the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include <c10/core/ScalarType.h>

namespace lockstep::comm {

enum class Reduce { kSum, kMax, kMin };

/// Told of elements [begin, end) of a result that has just been made: they are read while a cache
/// still holds them.
using ResultReader = std::function<void(int64_t begin, int64_t end)>;

/// Numbers of 16, 32 and 64 bits, and bytes.
bool can_reduce(at::ScalarType type);

/// out[i] = parts[0][i] + parts[1][i] + ..., for n elements of `type`; bfloat16 and float16 are
/// added in float32 and rounded once. `out` may be one of the parts. Error (internal): a type that
/// cannot be reduced.
void reduce_parts(
    at::ScalarType type, Reduce reduce, std::span<const void* const> parts, int64_t n, void* out);

}  // namespace lockstep::comm
