#include "ops/few_rows.h"

#include <ATen/ATen.h>

#include "ops/checked_products.h"
#include "ops/cpu/host_loops.h"

namespace lockstep::ops {

bool takes_few_rows(const Tensor& x) {
  const bool has_loops = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat;
  return has_loops && has_host_loops(x) && kernel::row_loops() != nullptr && !checks_products() &&
         x.numel() > 0 && x.numel() <= kernel::kFewRows * x.size(-1);
}

FewRows::FewRows(const Tensor& x)
    : shape_(x.sizes().vec()),
      type_(x.scalar_type()),
      numbers_(x.detach().to(at::kFloat).contiguous()),
      rows_{numbers_.const_data_ptr<float>(), x.numel() / x.size(-1), x.size(-1)} {}

void FewRows::order() {
  Tensor ordered = at::empty_like(numbers_);
  kernel::order_by_codes(rows_, ordered.mutable_data_ptr<float>());
  numbers_ = std::move(ordered);
  rows_.data = numbers_.const_data_ptr<float>();
}

Tensor FewRows::finished(const Tensor& sums, const Tensor& bias) const {
  std::vector<int64_t> shape = shape_;
  shape.back() = sums.size(1);
  const Tensor whole = bias.defined() ? sums + bias.to(at::kFloat) : sums;
  return whole.to(type_).view(shape);
}

Tensor few_rows_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const FewRows few(x);
  const auto* const numbers = static_cast<const uint16_t*>(weight.const_data_ptr());
  const kernel::FewRows rows = few.rows();
  const auto dot = kernel::row_loops()->bfloat16;
  return few.product(weight.size(0), bias, [=](int64_t row, float* sums) {
    dot(numbers + row * rows.width, rows, sums);
  });
}

}  // namespace lockstep::ops
