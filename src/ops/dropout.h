// Counter-based dropout and noise. Masks and noise are functions of a random key and the global
// element index, and are never stored.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Position of a slice in the whole tensor, for a rank that holds a slice of the heads or of the
/// sequence. For each dimension after the first: start of the slice and size of the whole tensor.
/// Empty: the slice is the whole tensor.
struct DropoutRegion {
  std::vector<int64_t> begin, whole;
  Tensor first = {};  // [B] int64 on the CPU: offset that is added to the element indices of each
                      // row, modulo 2^64; undefined: 0
};

/// Sets each element of x [B, ...] to zero with `probability` (in [0, 1)) and scales the others so
/// that the mean is preserved. `keys` [B], int64 on the CPU or the device of x, are the random keys
/// of the rows (base/counter_random.h).
///
/// Element e of a row of the whole tensor, counted in C order, uses 32 random bits: half e % 2 (0:
/// the low half) of random_bits(key, e / 2). It is dropped if their value is below probability *
/// 2^32. The backward pass generates the same mask again. Supports float32 and bfloat16 on the CPU,
/// and any floating-point type on other devices through tensor operations.
Tensor dropout(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region = {});

/// Returns the region of a block of attention probabilities [B, H, T, S] that starts at the given
/// head, query and key. Element indices are computed for a table of fixed size, which does not
/// depend on the sequence length, so that the mask of a row does not depend on the padding of the
/// micro-batch.
DropoutRegion probabilities_region(
    int64_t first_head, int64_t first_query, int64_t first_key, int64_t total_heads);

/// Returns true if `keys` are per-token keys of packed rows: int64 [B, T, 2] on the CPU, with each
/// token's document key and its position in the document. The mask of a document is then the same
/// as in a row of its own.
inline bool are_of_tokens(const Tensor& keys) {
  return keys.dim() == 3;
}

/// Applies dropout to x [B, T, C], with one key per row or with per-token keys.
Tensor dropout_of_tokens(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region = {});

/// Adds uniform noise to x [B, T, C], with one key per row or with per-token keys. Element e of a
/// row gets bound * (2 u - 1), where u in [0, 1) has the upper 24 of the element's random bits (see
/// dropout()). The gradient passes unchanged.
Tensor add_noise_to_tokens(
    const Tensor& x, double bound, const Tensor& keys, const DropoutRegion& region = {});

/// Start of a block of attention probabilities [B, H, T, S] in the whole.
struct ProbabilitiesPlace {
  int64_t head = 0, query = 0, key = 0;
  int64_t heads = 0;  // total number of heads; 0: the block has all heads
};

/// Applies dropout to a block of attention probabilities, with one key per row or with per-token
/// keys.
Tensor dropout_of_probabilities(
    const Tensor& x, double probability, const Tensor& keys, const ProbabilitiesPlace& place);

/// Computes the same result as dropout() with plain tensor operations. Used as reference by the
/// tests, and on other devices. Does not support autograd.
Tensor dropout_by_tensors(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region = {});

}  // namespace lockstep::ops
