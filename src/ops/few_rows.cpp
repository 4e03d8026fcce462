// Products of a few activation rows with a weight, for token generation.
#include "ops/few_rows.h"

#include <ATen/ATen.h>

#include "ops/checked_products.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/vector.h"
#include "ops/cpu/vector_types.h"

namespace lockstep::ops {
namespace {

struct Widen {
  LOCKSTEP_INLINE static void run(const vector::Bfloat16* from, float* to, int64_t count) {
    for (int64_t i = 0; i < count; i += vector::kLanes) {
      vector::store_up_to(to + i, vector::load_up_to(from + i, count - i), count - i);
    }
  }
};

/// Copies dense tensors by a loop. Generating a token needs many small tensors, for which ATen's
/// call overhead exceeds the cost of the copy.
Tensor in_float(const Tensor& x) {
  if (x.scalar_type() != at::kBFloat16 || !x.is_contiguous()) {
    return x.detach().to(at::kFloat).contiguous();
  }
  Tensor numbers = at::empty(x.sizes(), at::kFloat);
  vector::dispatch<Widen>(
      elements<vector::Bfloat16>(x), numbers.mutable_data_ptr<float>(), x.numel());
  return numbers;
}

}  // namespace

bool takes_few_rows(const Tensor& x) {
  const bool has_loops = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kFloat;
  return has_loops && has_host_loops(x) && kernel::row_loops() != nullptr && !checks_products() &&
         x.numel() > 0 && x.numel() <= kernel::kFewRows * x.size(-1);
}

FewRows::FewRows(const Tensor& x)
    : shape_(x.sizes().vec()),
      type_(x.scalar_type()),
      numbers_(in_float(x)),
      rows_{numbers_.const_data_ptr<float>(), x.numel() / x.size(-1), x.size(-1)} {}

void FewRows::order() {
  Tensor ordered = at::empty(numbers_.sizes(), at::kFloat);
  kernel::order_by_codes(rows_, ordered.mutable_data_ptr<float>());
  numbers_ = std::move(ordered);
  rows_.data = numbers_.const_data_ptr<float>();
}

FewRows::Result FewRows::result_of(int64_t count, const Tensor& bias) const {
  std::vector<int64_t> shape = shape_;
  shape.back() = count;
  return {at::empty(shape, type_), bias.defined() ? in_float(bias) : Tensor(), rows_.count, count};
}

void FewRows::Result::write(int64_t begin, int64_t size, const float* sums) const {
  const float* const more = bias.defined() ? bias.const_data_ptr<float>() + begin : nullptr;
  const auto write_to = [&]<class T>(T* to) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < size; ++i) {
        const float sum = sums[row * size + i];
        vector::narrow(more == nullptr ? sum : sum + more[i], to[row * count + begin + i]);
      }
    }
  };
  if (tensor.scalar_type() == at::kFloat) {
    write_to(mutable_elements<float>(tensor));
  } else {
    write_to(mutable_elements<vector::Bfloat16>(tensor));
  }
}

Tensor few_rows_linear(
    const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const kernel::RowLoops& loops = *kernel::row_loops();
  const auto* const numbers = static_cast<const uint16_t*>(weight.const_data_ptr());
  const FewRows few(x);
  const kernel::FewRows rows = few.rows();
  if (layout == WeightLayout::kOutIn) {
    return few.product(weight.size(0), bias, [=, &loops](int64_t row, int64_t, float* sums) {
      loops.bfloat16(numbers + row * rows.width, rows, sums);
    });
  }
  const int64_t out = weight.size(1);
  return few.product_of_columns(out, bias, [=, &loops](int64_t begin, int64_t size, float* sums) {
    loops.columns({numbers + begin, out, size}, rows, sums);
  });
}

}  // namespace lockstep::ops
