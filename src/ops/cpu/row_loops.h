// Products of one weight row with a few rows of activations, for generation, which is limited by
// reading the weights. Each weight is read once and unpacked in registers.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// Maximum number of rows. More rows occur in prompts and training, where matrix products are
/// faster.
inline constexpr int64_t kFewRows = 4;

/// [count, width], count at most kFewRows.
struct FewRows {
  const float* data = nullptr;
  int64_t count = 0, width = 0;
};

/// Number of 4-bit codes processed at a time, and number of weight rows, which share the loads of
/// the activations.
inline constexpr int64_t kCodesAtOnce = 64, kCodedRows = 2;

/// A row of 4-bit codes; the first of two elements is in the high half of a byte. Element i is
/// values[code] * scales[i / block]. Width and block are multiples of kCodesAtOnce.
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

/// Computes out[r] = the sum of weight[i] * rows[r][i] over i, in float32.
template <class Weight>
using RowLoop = void (*)(const Weight* weight, const FewRows& rows, float* out);

struct RowLoops {
  RowLoop<float> floats = nullptr;
  RowLoop<uint16_t> bfloat16 = nullptr;
  RowLoop<int8_t> bytes = nullptr;
  /// Products of kCodedRows rows of codes, which have the same values and block size, with `rows`
  /// in the order of order_by_codes(). out[i * kFewRows + r] belongs to weight row i. A block's sum
  /// is multiplied by its scale.
  void (*coded)(const CodedRow* weights, const FewRows& rows, float* out) = nullptr;
  /// Computes out[r * weight.count + j] = the sum over column j of weight times rows[r].
  void (*columns)(const WeightColumns& weight, const FewRows& rows, float* out) = nullptr;
};
extern const RowLoops kRowLoopsAvx2, kRowLoopsAvx512;

/// Returns the loops for this processor (vector.h); null if it has none.
const RowLoops* row_loops();

/// Reorders rows into the order in which the loops unpack codes. `to` has the size of `rows.data`.
void order_by_codes(const FewRows& rows, float* to);

}  // namespace lockstep::ops::kernel
