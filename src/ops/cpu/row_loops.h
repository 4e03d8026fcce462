// Products of weight rows with a few activation rows, for token generation, whose time is dominated
// by reading the weights. Each weight is read once and unpacked in registers.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// Maximum number of activation rows. Prompts and training have more rows, for which matrix
/// products are faster.
inline constexpr int64_t kFewRows = 4;

/// [count, width], with count at most kFewRows.
struct FewRows {
  const float* data = nullptr;
  int64_t count = 0, width = 0;
};

/// Number of 4-bit codes processed at a time, and number of weight rows that share the loads of the
/// activations.
inline constexpr int64_t kCodesAtOnce = 64, kCodedRows = 2;

/// A row of 4-bit codes. The first of two elements is in the high half of a byte. Element i is
/// values[code] * scales[i / block]. The width and the block are multiples of kCodesAtOnce.
struct CodedRow {
  const uint8_t* codes = nullptr;
  const float* values = nullptr;  // 16 values
  const float* scales = nullptr;
  int64_t block = 0;
};

/// Columns of a bfloat16 weight [in, out]: element i of column j is data[i * stride + j].
struct WeightColumns {
  const uint16_t* data = nullptr;
  int64_t stride = 0, count = 0;
};

/// Computes out[r] = sum of weight[i] * rows[r][i] over i, in float32.
template <class Weight>
using RowLoop = void (*)(const Weight* weight, const FewRows& rows, float* out);

struct RowLoops {
  RowLoop<float> floats = nullptr;
  RowLoop<uint16_t> bfloat16 = nullptr;
  RowLoop<int8_t> bytes = nullptr;
  /// Computes the products of kCodedRows rows of codes, which have the same values and block size,
  /// with `rows` in the order of order_by_codes(). out[i * kFewRows + r] belongs to weight row i.
  /// The sum over a block is multiplied by the block's scale.
  void (*coded)(const CodedRow* weights, const FewRows& rows, float* out) = nullptr;
  /// Computes out[r * weight.count + j] = sum of column j of the weight times rows[r].
  void (*columns)(const WeightColumns& weight, const FewRows& rows, float* out) = nullptr;
};
extern const RowLoops kRowLoopsAvx2, kRowLoopsAvx512;

/// Returns the loops for this processor (vector.h); null if it is not supported.
const RowLoops* row_loops();

/// Reorders the elements of rows to the order in which the loops unpack codes. `to` has the size of
/// `rows.data`.
void order_by_codes(const FewRows& rows, float* to);

}  // namespace lockstep::ops::kernel
