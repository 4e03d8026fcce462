// Products of a few activation rows with a weight, which is read only once. Internal to ops.
#pragma once

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include "ops/cpu/row_loops.h"
#include "ops/linear.h"

namespace lockstep::ops {

/// Returns true if x [..., width] has few rows of float32 or bfloat16 and this processor has the
/// loops. Returns false if products are verified, because verification reads the weight as a
/// matrix.
bool takes_few_rows(const Tensor& x);

/// Returns x W (+ bias) for bfloat16 x and a contiguous bfloat16 weight in the given layout. Sums
/// in float32 and rounds once. Does not support autograd.
Tensor few_rows_linear(
    const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout);

/// A few activation rows, converted to float32.
class FewRows {
 public:
  explicit FewRows(const Tensor& x);
  const kernel::FewRows& rows() const { return rows_; }
  at::ScalarType type() const { return type_; }
  /// Reorders the rows as kernel::order_by_codes() does.
  void order();
  /// Returns the products of the activation rows with each row of a weight, plus the bias [count]
  /// if defined, as [..., count] in x's type. Each thread has its own copy of `dot` and calls it
  /// for up to kTogether weight rows at a time, with the first row, the number of rows, and the
  /// destination, which receives kernel::kFewRows values per weight row.
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
  /// Variant for the columns of a weight: `sum(begin, size, out)` writes the sums of `size`
  /// columns, starting at `begin`, for each activation row.
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
  static constexpr int64_t kRowsAtOnce = 64;     // number of weight rows whose sums are rounded
                                                 // together
  static constexpr int64_t kColumnsAtOnce = 64;  // number of columns that is assigned to a thread
                                                 // at a time
  static constexpr int64_t kMostSums = 4096;     // number of sums that fit in the level-1 cache

  struct Result {
    Tensor tensor, bias;  // `bias` is float32 or undefined
    int64_t rows = 0, count = 0;
    /// Adds the bias to the sums [rows, size] of the columns from `begin` on, and writes the
    /// rounded results.
    void write(int64_t begin, int64_t size, const float* sums) const;
  };
  Result result_of(int64_t count, const Tensor& bias) const;
  int64_t least_for_a_thread() const {
    constexpr int64_t kLeast = 1 << 15;  // minimum number of elements per thread
    return std::max<int64_t>(kLeast / std::max<int64_t>(rows_.width, 1), 1);
  }

  std::vector<int64_t> shape_;
  at::ScalarType type_;
  Tensor numbers_;
  kernel::FewRows rows_;
};

}  // namespace lockstep::ops
