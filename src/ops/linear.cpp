// Linear layers: product, bias, gradients, and products with adapter factors.
#include "ops/linear.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/checked_products.h"
#include "ops/few_rows.h"
#include "ops/gradient_sink.h"
#include "ops/matrix_run.h"
#include "ops/products.h"

namespace lockstep::ops {
namespace {

using kernel::Depth;

bool has_kernel(const Tensor& rows, const Tensor& weight) {
  return fits_matrix_kernel(rows) && fits_matrix_kernel(weight) &&
         rows.numel() >= kLeastProductRows * rows.size(-1);
}

/// Returns true for token generation with few rows, whose time is dominated by reading the weights.
bool reads_weight_once(const Tensor& x, const Tensor& weight) {
  return !at::GradMode::is_enabled() && x.scalar_type() == at::kBFloat16 &&
         weight.scalar_type() == at::kBFloat16 && weight.is_contiguous() && takes_few_rows(x);
}

Tensor rows_of(const Tensor& x) {
  const int64_t rows = c10::multiply_integers(x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)));
  return x.contiguous().view({rows, x.size(-1)});  // -1 would be ambiguous for a width of 0
}

/// Returns the description of the product left x right, without a destination. Both operands are
/// contiguous and 2-D.
kernel::MatrixProduct operands_of(
    const Tensor& left, Depth left_depth, const Tensor& right, Depth right_depth) {
  kernel::MatrixProduct product;
  product.rows = left.size(left_depth == Depth::kAlongRows ? 0 : 1);
  product.depth = left.size(left_depth == Depth::kAlongRows ? 1 : 0);
  product.columns = right.size(right_depth == Depth::kAlongRows ? 0 : 1);
  product.left = operand(left, left_depth);
  product.right = operand(right, right_depth);
  return product;
}

void run_into(kernel::MatrixProduct product, const Tensor& result, kernel::Sums sums) {
  product.result = result.data_ptr();
  product.result_stride = result.stride(0);
  product.sums = sums;
  run(product);
}

/// Computes left x right (+ bias). Both operands are contiguous and 2-D. If `place` has memory, the
/// result is written there and the returned tensor is undefined.
Tensor multiply(
    const Tensor& left,
    Depth left_depth,
    const Tensor& right,
    Depth right_depth,
    const Tensor& bias = Tensor(),
    float* left_sums = nullptr,
    float* right_sums = nullptr,
    const GradientPlace& place = {}) {
  kernel::MatrixProduct product = operands_of(left, left_depth, right, right_depth);
  product.bias = bias.defined() ? bias.const_data_ptr() : nullptr;
  product.left_sums = left_sums;
  product.right_sums = right_sums;
  const bool fits = place.memory.defined() && place.memory.scalar_type() == left.scalar_type();
  if (fits && place.holds_sum && !checks_products()) {
    run_into(product, place.memory, kernel::Sums::kAddedAndRounded);
    return {};
  }
  const bool is_written = fits && !place.holds_sum;
  const Tensor result =
      is_written ? place.memory : at::empty({product.rows, product.columns}, left.options());
  run_into(product, result, kernel::Sums::kRounded);
  check_product(
      result,
      left_depth == Depth::kAlongRows ? left : left.t(),
      right_depth == Depth::kAlongRows ? right.t() : right,
      bias,
      [&] { run_into(product, result, kernel::Sums::kRounded); });
  if (!place.memory.defined()) {
    return result;
  }
  if (!is_written) {
    place.holds_sum ? place.memory.add_(result) : place.memory.copy_(result);
  }
  return {};
}

/// Computes a gradient product with ATen and writes it to `place` if it has memory.
Tensor gradient_product(const Tensor& left, const Tensor& right, const GradientPlace& place) {
  if (!place.memory.defined()) {
    return matrix_product(left, right);
  }
  place.holds_sum ? add_matrix_product(place.memory, left, right)
                  : write_matrix_product(place.memory, left, right);
  return {};
}

/// A float32 tensor split into bfloat16 values and bfloat16 remainders.
struct TwoHalves {
  explicit TwoHalves(const Tensor& x)
      : high(x.to(at::kBFloat16)),
        low((x - high).to(at::kBFloat16)) {}
  Tensor high, low;
};

Tensor out_in(const Tensor& weight, WeightLayout layout) {
  return layout == WeightLayout::kOutIn ? weight : weight.t();
}

std::vector<int64_t> with_last(const Tensor& x, int64_t size) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = size;
  return sizes;
}

Tensor product_of(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  if (!has_kernel(x, weight)) {
    const Tensor y = matrix_product(rows_of(x), out_in(weight, layout).t(), bias);
    return y.view(with_last(x, y.size(1)));
  }
  const Tensor w = weight.contiguous();
  return multiply(
             rows_of(x),
             Depth::kAlongRows,
             w,
             layout == WeightLayout::kOutIn ? Depth::kAlongRows : Depth::kAcrossRows,
             bias.defined() ? bias.contiguous() : bias)
      .view(with_last(x, w.size(layout == WeightLayout::kOutIn ? 0 : 1)));
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      const Tensor& weight,
      const std::optional<Tensor>& bias,
      WeightLayout layout) {
    // x is needed only for the gradient of the weight, so it is not saved if the weight is frozen.
    const Tensor shift = bias.value_or(Tensor());
    context->save_for_backward({weight.requires_grad() ? x : Tensor(), weight, shift});
    context->saved_data["layout"] = static_cast<int64_t>(layout);
    return product_of(x, weight, shift, layout);
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto layout = static_cast<WeightLayout>(context->saved_data["layout"].toInt());
    const Tensor dy = gradients[0].contiguous();
    Tensor dx;
    if (context->needs_input_grad(0)) {
      dx = linear_input_gradient(dy, saved[1], layout);
    }
    LinearGradients made;
    const bool needs_bias = saved[2].defined() && context->needs_input_grad(2);
    if (context->needs_input_grad(1)) {
      made =
          linear_weight_gradients(dy, saved[0], saved[1], needs_bias ? saved[2] : Tensor(), layout);
    } else if (needs_bias) {
      made.bias = linear_bias_gradient(dy, saved[2]);
    }
    return {dx, made.weight, made.bias, Tensor()};
  }
};

}  // namespace

Tensor linear(
    const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, WeightLayout layout) {
  if (reads_weight_once(x, weight)) {
    return few_rows_linear(x, weight, bias.value_or(Tensor()), layout);
  }
  const bool is_ours = has_kernel(x, weight) || !multiplies(x.device(), x.scalar_type()) ||
                       (checks_products() && x.device().is_cpu()) ||
                       (at::GradMode::is_enabled() && has_gradient_sink(weight));
  if (!is_ours || (bias && bias->scalar_type() != x.scalar_type())) {
    return at::linear(x, out_in(weight, layout), bias);
  }
  return LinearFunction::apply(x, weight, bias, layout);
}

Tensor linear_input_gradient(const Tensor& y_gradient, const Tensor& weight, WeightLayout layout) {
  if (!has_kernel(y_gradient, weight)) {
    const Tensor x_gradient = matrix_product(rows_of(y_gradient), out_in(weight, layout));
    return x_gradient.view(with_last(y_gradient, x_gradient.size(1)));
  }
  const bool is_out_in = layout == WeightLayout::kOutIn;
  return multiply(
             rows_of(y_gradient),
             Depth::kAlongRows,
             weight.contiguous(),
             is_out_in ? Depth::kAcrossRows : Depth::kAlongRows)
      .view(with_last(y_gradient, weight.size(is_out_in ? 1 : 0)));
}

LinearGradients linear_weight_gradients(
    const Tensor& y_gradient,
    const Tensor& x,
    const Tensor& weight,
    const Tensor& bias,
    WeightLayout layout) {
  const Tensor dy = rows_of(y_gradient), rows = rows_of(x);
  const bool is_out_in = layout == WeightLayout::kOutIn;
  const GradientPlace place = place_of_gradient(weight);
  if (!has_kernel(dy, rows)) {
    return {
        is_out_in ? gradient_product(dy.t(), rows, place) : gradient_product(rows.t(), dy, place),
        bias.defined() ? linear_bias_gradient(dy, bias) : Tensor()};
  }
  const Tensor sums = bias.defined() ? at::empty({dy.size(1)}, at::kFloat) : Tensor();
  float* of_gradient = sums.defined() ? sums.data_ptr<float>() : nullptr;
  const Depth across = Depth::kAcrossRows;
  const Tensor made = is_out_in
                          ? multiply(dy, across, rows, across, {}, of_gradient, nullptr, place)
                          : multiply(rows, across, dy, across, {}, nullptr, of_gradient, place);
  return {made, sums.defined() ? sums.to(dy.scalar_type()) : Tensor()};
}

Tensor linear_bias_gradient(const Tensor& y_gradient, const Tensor& bias) {
  Tensor place = memory_of_gradient(bias);
  const Tensor rows = rows_of(y_gradient);
  if (!place.defined()) {
    return rows.sum(0);
  }
  at::sum_out(place, rows, 0);
  return {};
}

bool multiplies_factors(const Tensor& rows) {
  return rows.dim() == 2 && rows.is_contiguous() && has_kernel(rows, rows);
}

Tensor times_factor(const Tensor& rows, const Tensor& factor) {
  const TwoHalves parts(factor);
  const int64_t r = factor.size(0);
  const Tensor both = at::cat({parts.high, parts.low}, 0);  // [2 r, k]
  const Tensor result = at::empty({rows.size(0), 2 * r}, factor.options());
  run_into(
      operands_of(rows, Depth::kAlongRows, both, Depth::kAlongRows), result, kernel::Sums::kKept);
  return result.narrow(1, 0, r) + result.narrow(1, r, r);
}

Tensor factor_times(const Tensor& left, const Tensor& rows) {
  const TwoHalves parts(left);
  const int64_t r = left.size(1);
  const Tensor both = at::cat({parts.high, parts.low}, 1);  // [n, 2 r]
  const Tensor result = at::empty({2 * r, rows.size(1)}, left.options());
  run_into(
      operands_of(both, Depth::kAcrossRows, rows, Depth::kAcrossRows), result, kernel::Sums::kKept);
  return result.narrow(0, 0, r) + result.narrow(0, r, r);
}

void write_factor_product(
    const Tensor& result, const Tensor& left, const Tensor& right, Into into) {
  const TwoHalves of_left(left), of_right(right);
  run_into(
      operands_of(
          at::cat({of_left.high, of_left.high, of_left.low}, 1),
          Depth::kAlongRows,
          at::cat({of_right.high, of_right.low, of_right.high}, 0),
          Depth::kAcrossRows),
      result,
      into == Into::kAdded ? kernel::Sums::kAddedAndRounded : kernel::Sums::kRounded);
}

}  // namespace lockstep::ops
