// Dropout whose mask is a function of a key and the global element, and is never kept.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Where a part of a tensor stands in the whole, for a rank that holds a slice of heads or of the
/// sequence: for each dim after the first, where the part begins and how large the whole is. Empty:
/// the part is the whole.
struct DropoutRegion {
  std::vector<int64_t> begin, whole;
  Tensor first = {};  // [B] int64 on the CPU: what is added to the number of each element of a row
                      // (modulo 2^64); undefined: 0
};

/// x [B, ...] with elements set to zero with `probability` (in [0, 1)) and the others scaled so
/// that the mean stays. `keys` [B] int64 on the CPU or the device of x: the key of each row
/// (base/counter_random.h).
/// Element e of a row's whole, counted in C order, draws 32 bits, half e % 2 (0 is the low one) of
/// random_bits(key, e / 2), and is dropped where they are below probability * 2^32. The backward
/// pass draws the mask again: none is kept. float32 and bfloat16 on the CPU; any float type
/// elsewhere, by tensor operations.
Tensor dropout(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region = {});

/// Of a block of attention's probabilities [B, H, T, S] that begins with this head, query and key.
/// The sides of the table that its elements are counted in are none of the sequences': however far
/// a micro-batch is padded, a row draws the same mask.
DropoutRegion probabilities_region(
    int64_t first_head, int64_t first_query, int64_t first_key, int64_t total_heads);

/// Keys as rows of several documents have them, each of which draws what it draws in a row of its
/// own: int64 [B, T, 2] on the CPU, of each token its document's key, and its place in it.
inline bool are_of_tokens(const Tensor& keys) {
  return keys.dim() == 3;
}

/// Dropout of x [B, T, C], by the keys of its rows, or of all tokens of its rows.
Tensor dropout_of_tokens(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region = {});

/// Where a block of attention's probabilities [B, H, T, S] begins.
struct ProbabilitiesPlace {
  int64_t head = 0, query = 0, key = 0;
  int64_t heads = 0;  // of the whole; 0: those of the block
};

/// Dropout of such a block. `keys` are of its rows, or of all tokens of its rows.
Tensor dropout_of_probabilities(
    const Tensor& x, double probability, const Tensor& keys, const ProbabilitiesPlace& place);

/// The same as dropout(), written plainly: a reference for tests, and what other devices run. No
/// gradient of its own.
Tensor dropout_by_tensors(
    const Tensor& x, double probability, const Tensor& keys, const DropoutRegion& region = {});

}  // namespace lockstep::ops
