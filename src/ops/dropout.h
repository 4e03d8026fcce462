// Counter-based dropout: the mask is a function of a key and the global element index and is never
// stored.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Position of a slice in the whole tensor, for a rank that holds a slice of heads or of the
/// sequence. For each dim after the first: the start of the slice and the size of the whole. Empty:
/// the slice is the whole.
struct DropoutRegion {
  std::vector<int64_t> begin, whole;
  Tensor first = {};  // [B] int64 on the CPU: offset (modulo 2^64) added to the element indexes of
                      // each row; undefined: 0
};

/// Sets elements of x [B, ...] to zero with `probability` (in [0, 1)) and scales the others so that
/// the mean is preserved. `keys` [B], int64 on the CPU or the device of x, are the random keys of
/// the rows (base/counter_random.h).
///
/// Element e of a row of the whole tensor, counted in C order, draws 32 bits: half e % 2 (0 is the
/// low half) of random_bits(key, e / 2). It is dropped if they are below probability * 2^32. The
/// backward pass draws the same mask again. Supports float32 and bfloat16 on the CPU, and any float
/// type elsewhere by tensor operations.
Tensor dropout(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region = {});

/// Returns the region of a block of attention probabilities [B, H, T, S] that starts at the given
/// head, query and key. Its elements are counted in a table of fixed size, independent of the
/// sequence length. A row therefore draws the same mask for any padding of the micro-batch.
DropoutRegion probabilities_region(
    int64_t first_head, int64_t first_query, int64_t first_key, int64_t total_heads);

/// True for per-token keys of packed rows, int64 [B, T, 2] on the CPU: each token's document key
/// and its position in the document. Each document then draws the same mask as in a row of its own.
inline bool are_of_tokens(const Tensor& keys) {
  return keys.dim() == 3;
}

/// Applies dropout to x [B, T, C] with one key per row or per-token keys.
Tensor dropout_of_tokens(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region = {});

/// Start of a block of attention probabilities [B, H, T, S].
struct ProbabilitiesPlace {
  int64_t head = 0, query = 0, key = 0;
  int64_t heads = 0;  // total number of heads; 0: those of the block
};

/// Applies dropout to such a block, with one key per row or per-token keys.
Tensor dropout_of_probabilities(
    const Tensor& x, double probability, const Tensor& keys, const ProbabilitiesPlace& place);

/// Same result as dropout() with plain tensor operations: the reference of the tests, and the
/// implementation for other devices. No autograd.
Tensor dropout_by_tensors(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region = {});

}  // namespace lockstep::ops
