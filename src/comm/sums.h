// Sums, maxima and minima of parts that lie in memory, in the order of the ranks.
#pragma once

#include <cstdint>
#include <span>

#include <c10/core/ScalarType.h>

namespace lockstep::comm {

enum class Reduce { kSum, kMax, kMin };

/// Numbers of 16, 32 and 64 bits, and bytes.
bool can_reduce(at::ScalarType type);

/// out[i] = parts[0][i] + parts[1][i] + ..., for n elements of `type`; bfloat16 and float16 are
/// added in float32 and rounded once. `out` may be one of the parts. Error (internal): a type that
/// cannot be reduced.
void reduce_parts(
    at::ScalarType type, Reduce reduce, std::span<const void* const> parts, int64_t n, void* out);

}  // namespace lockstep::comm
