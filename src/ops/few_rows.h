// Products of a few rows with a weight that is read once for all of them. Internal to ops.
#pragma once

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "ops/cpu/row_loops.h"
#include "ops/linear.h"

namespace lockstep::ops {

/// True if x [..., width] has few rows in float32 or bfloat16 and this processor has the loops.
/// False if products are checked, because a check reads the weight as a matrix.
bool takes_few_rows(const Tensor& x);

/// Returns x W (+ bias) for bfloat16 x and a contiguous bfloat16 weight in the given layout, summed
/// in float32 and rounded once. No autograd.
Tensor few_rows_linear(
    const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout);

/// The rows of x in float32.
class FewRows {
 public:
  explicit FewRows(const Tensor& x);
  const kernel::FewRows& rows() const { return rows_; }
  at::ScalarType type() const { return type_; }
  /// Reorders the rows with kernel::order_by_codes().
  void order();
  /// Returns [..., count] in x's type: the products with each row of a weight, plus the bias
  /// [count] if defined. Each thread has a copy of `dot` and calls it for up to kTogether weight
  /// rows at a time, with the first row, the number of rows, and the destination with
  /// kernel::kFewRows values per row.
  template <int64_t kTogether = 1, class Dot>
  Tensor product(int64_t count, const Tensor& bias, const Dot& dot) const {
    static_assert(kRowsAtOnce % kTogether == 0);
    const Result result = result_of(count, bias);
    at::parallel_for(0, count, least_for_a_thread(), [&](int64_t begin, int64_t end) {
      Dot mine = dot;
      float sums[kernel::kFewRows * kRowsAtOnce], of_rows[kTogether * kernel::kFewRows];
      for (int64_t first = begin; first < end; first += kRowsAtOnce) {
        const int64_t size = std::min(kRowsAtOnce, end - first);
        for (int64_t i = 0; i < size; i += kTogether) {
          const int64_t together = std::min(kTogether, size - i);
          mine(first + i, together, of_rows);
          for (int64_t k = 0; k < rows_.count; ++k) {
            for (int64_t j = 0; j < together; ++j) {
              sums[k * size + i + j] = of_rows[j * kernel::kFewRows + k];
            }
          }
        }
        result.write(first, size, sums);
      }
    });
    return result.tensor;
  }
  /// The same for columns of a weight: `sum(begin, size, out)` writes the sums of `size` columns
  /// from `begin` on, for each row.
  template <class Sum>
  Tensor product_of_columns(int64_t count, const Tensor& bias, const Sum& sum) const {
    const Result result = result_of(count, bias);
    const int64_t steps = (count + kColumnsAtOnce - 1) / kColumnsAtOnce;
    at::parallel_for(
        0, steps, least_for_a_thread() / kColumnsAtOnce + 1, [&](int64_t first, int64_t last) {
          float sums[kMostSums];
          const int64_t most = kMostSums / rows_.count;
          const int64_t end = std::min(last * kColumnsAtOnce, count);
          for (int64_t begin = first * kColumnsAtOnce; begin < end; begin += most) {
            const int64_t size = std::min(most, end - begin);
            sum(begin, size, sums);
            result.write(begin, size, sums);
          }
        });
    return result.tensor;
  }

 private:
  static constexpr int64_t kRowsAtOnce = 64;     // weight rows whose sums are rounded together
  static constexpr int64_t kColumnsAtOnce = 64;  // granularity of the division among threads
  static constexpr int64_t kMostSums = 4096;     // sums that fit in the level-1 cache

  struct Result {
    Tensor tensor, bias;  // bias is float32, or undefined
    int64_t rows = 0, count = 0;
    /// Writes the rounded sums [rows, size] of the columns from `begin` on, with the bias added.
    void write(int64_t begin, int64_t size, const float* sums) const;
  };
  Result result_of(int64_t count, const Tensor& bias) const;
  int64_t least_for_a_thread() const {
    constexpr int64_t kLeast = 1 << 15;  // elements
    return std::max<int64_t>(kLeast / std::max<int64_t>(rows_.width, 1), 1);
  }

  std::vector<int64_t> shape_;
  at::ScalarType type_;
  Tensor numbers_;
  kernel::FewRows rows_;
};

}  // namespace lockstep::ops
