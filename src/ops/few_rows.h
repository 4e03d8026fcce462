// Products of a few rows with a weight whose rows are read once for all of them. Internal to ops.
#pragma once

#include <algorithm>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "ops/cpu/row_loops.h"

namespace lockstep::ops {

using at::Tensor;

/// Whether x [..., width] is of so few rows, in float32 or bfloat16, and this processor has the
/// loops. Not where products are checked, since a check reads the weight as a matrix.
bool takes_few_rows(const Tensor& x);

/// x W^T (+ bias) for weight [out, in] in bfloat16, dense, and x of the same: summed in float32 and
/// rounded once. No autograd.
Tensor few_rows_linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

/// Such rows in float32.
class FewRows {
 public:
  explicit FewRows(const Tensor& x);
  const kernel::FewRows& rows() const { return rows_; }
  at::ScalarType type() const { return type_; }
  /// In the order of kernel::order_by_codes().
  void order();
  /// [..., count] in x's type: the sums of each row of a weight, which a copy of `dot`, one a
  /// thread, writes to its second argument, plus the bias [count] if it is defined.
  template <class Dot>
  Tensor product(int64_t count, const Tensor& bias, const Dot& dot) const {
    const Tensor sums = at::empty({rows_.count, count}, at::kFloat);
    auto* const out = sums.mutable_data_ptr<float>();
    constexpr int64_t kLeast = 1 << 15;  // elements for a thread
    const int64_t grain = std::max<int64_t>(kLeast / std::max<int64_t>(rows_.width, 1), 1);
    at::parallel_for(0, count, grain, [&](int64_t begin, int64_t end) {
      Dot mine = dot;
      for (int64_t i = begin; i < end; ++i) {
        float of_row[kernel::kFewRows];
        mine(i, of_row);
        for (int64_t k = 0; k < rows_.count; ++k) {
          out[k * count + i] = of_row[k];
        }
      }
    });
    return finished(sums, bias);
  }

 private:
  Tensor finished(const Tensor& sums, const Tensor& bias) const;

  std::vector<int64_t> shape_;
  at::ScalarType type_;
  Tensor numbers_;
  kernel::FewRows rows_;
};

}  // namespace lockstep::ops
