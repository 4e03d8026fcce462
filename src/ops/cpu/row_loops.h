// One row of a weight times a few rows of activations, for who writes one token after the other and
// so waits for the weights: each is read once, and unpacked in registers.
#pragma once

#include <cstdint>

namespace lockstep::ops::kernel {

/// More rows are a prompt or training, for which products of matrices pay.
inline constexpr int64_t kFewRows = 4;

/// [count, width], count at most kFewRows.
struct FewRows {
  const float* data = nullptr;
  int64_t count = 0, width = 0;
};

/// Codes of 4 bits are taken so many at a time, of so many rows: what is read of the activations
/// serves all of these.
inline constexpr int64_t kCodesAtOnce = 64, kCodedRows = 2;

/// A row of codes of 4 bits, the first of two elements in the high half of a byte: element i is
/// values[code] * scales[i / block]. Width and block are multiples of kCodesAtOnce.
struct CodedRow {
  const uint8_t* codes = nullptr;
  const float* values = nullptr;  // 16
  const float* scales = nullptr;
  int64_t block = 0;
};

/// Columns of a weight [in, out] of bfloat16: element i of column j is data[i * stride + j].
struct WeightColumns {
  const uint16_t* data = nullptr;
  int64_t stride = 0, count = 0;
};

/// out[r] = the sum of weight[i] * rows[r][i], in float32.
template <class Weight>
using RowLoop = void (*)(const Weight* weight, const FewRows& rows, float* out);

struct RowLoops {
  RowLoop<float> floats = nullptr;
  RowLoop<uint16_t> bfloat16 = nullptr;
  RowLoop<int8_t> bytes = nullptr;
  /// Of kCodedRows rows of codes, with values and blocks in common, and `rows` that
  /// order_by_codes() has laid out: out[i * kFewRows + r] is row i's. A block's sum is multiplied
  /// by its scale.
  void (*coded)(const CodedRow* weights, const FewRows& rows, float* out) = nullptr;
  /// out[r * weight.count + j] = the sum of column j's elements times those of rows[r].
  void (*columns)(const WeightColumns& weight, const FewRows& rows, float* out) = nullptr;
};
extern const RowLoops kRowLoopsAvx2, kRowLoopsAvx512;

/// Those for this processor (vector.h); null: it has none.
const RowLoops* row_loops();

/// Rows in the order in which the elements of codes are met: `to` like `rows.data`.
void order_by_codes(const FewRows& rows, float* to);

}  // namespace lockstep::ops::kernel
