#include "nn/decomposed.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace lockstep::nn {
namespace {

/// Of the rows of W + s B A, or of a part of their columns.
Tensor squares_of_rows(const Tensor& matrix, const Tensor& a, const Tensor& b, double scale) {
  return at::addmm(
             matrix.detach().to(at::kFloat),
             b.detach().to(at::kFloat),
             a.detach().to(at::kFloat),
             1,
             scale)
      .square()
      .sum(1);
}

}  // namespace

Tensor row_norms(const Tensor& matrix, const Tensor& a, const Tensor& b, double scale) {
  return squares_of_rows(matrix, a, b, scale).sqrt();
}

DecomposedProduct::DecomposedProduct(
    std::shared_ptr<Product> base, double scale, std::shared_ptr<Dropout> dropout)
    : base_(std::move(base)),
      factors_{.scale = scale, .dropout = std::move(dropout), .a = {}, .b = {}},
      bias_(base_->take_bias()) {}

Tensor DecomposedProduct::draw(const ForwardContext& context) const {
  return factors_.dropout->draw(context);
}

const Tensor& DecomposedProduct::norms() const {
  base_->visit_parameters([&](const Parameter& weight) {
    if (weight.name != "weight") {
      return;
    }
    // They only grow: a step changes their sum.
    const auto version = static_cast<int64_t>(
        weight.value._version() + factors_.a._version() + factors_.b._version());
    if (norms_.defined() && version == norms_version_) {
      return;
    }
    const at::NoGradGuard no_grad;
    const Tensor squares = squares_of_rows(base_->matrix(), factors_.a, factors_.b, factors_.scale);
    norms_ = (sum_over_inputs_ ? sum_over_inputs_(squares) : squares).sqrt();
    norms_version_ = version;
  });
  return norms_;
}

Tensor DecomposedProduct::dropped(const Tensor& x, const Tensor& drawn) const {
  return factors_.rows_of(x, drawn).to(x.scalar_type());
}

Tensor DecomposedProduct::forward(const Tensor& x, const Tensor& drawn) const {
  const Tensor plain = base_->forward(x, {});
  if (!factors_.are_on) {
    return bias_.defined() ? plain + bias_ : plain;
  }
  const Tensor k = magnitudes_ / norms();
  const Tensor added = factors_.added(factors_.rows_of(x, drawn));
  Tensor y = drawn.defined() ? plain + (k - 1) * base_->forward(dropped(x, drawn), {}) + k * added
                             : k * (plain + added);
  if (bias_.defined()) {
    y = y + bias_;
  }
  return y.to(x.scalar_type());
}

Tensor DecomposedProduct::input_gradient(const Tensor& y_gradient, const Tensor& drawn) const {
  const Tensor k = magnitudes_.detach() / norms(), dy = y_gradient.to(k.scalar_type());
  const auto type = y_gradient.scalar_type();
  const Tensor added = factors_.input_gradient(k * dy);
  if (!drawn.defined()) {
    return (base_->input_gradient((k * dy).to(type), {}) + added).to(type);
  }
  const Tensor of_dropped = base_->input_gradient(((k - 1) * dy).to(type), {}) + added;
  return (base_->input_gradient(y_gradient, {}) + factors_.dropout->apply(of_dropped, drawn))
      .to(type);
}

void DecomposedProduct::accumulate_weight_gradients(
    const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const {
  const Tensor k = magnitudes_.detach() / norms(), dy = y_gradient.to(k.scalar_type());
  const Tensor rows = factors_.rows_of(x, drawn);
  if (bias_.defined() && bias_.requires_grad()) {
    accumulate_gradient(bias_, y_gradient.flatten(0, -2).sum(0));
  }
  if (base_->is_trained()) {
    const Tensor of_dropped = ((k - 1) * dy).to(y_gradient.scalar_type());
    base_->accumulate_weight_gradients(y_gradient, x, {});
    base_->accumulate_weight_gradients(of_dropped, dropped(x, drawn), {});
  }
  factors_.accumulate_weight_gradients(k * dy, rows);
  if (magnitudes_.requires_grad()) {
    const Tensor directions = base_->forward(dropped(x, drawn), {}) + factors_.added(rows);
    accumulate_gradient(magnitudes_, (dy * directions).flatten(0, -2).sum(0) / norms());
  }
}

bool DecomposedProduct::is_trained() const {
  return factors_.are_trained() || magnitudes_.requires_grad() || base_->is_trained() ||
         (bias_.defined() && bias_.requires_grad());
}

void DecomposedProduct::visit_parameters(const ParameterFunction& function) {
  base_->visit_parameters([&](const Parameter& parameter) {
    if (parameter.name != "bias") {
      function(parameter);
    }
  });
  function({"bias", bias_, 0, -1});
  factors_.visit(function);
  function({"lora_magnitude_vector", magnitudes_, 0, -1});
}

Tensor DecomposedProduct::take_bias() {
  return std::exchange(bias_, Tensor());
}

void DecomposedProduct::set_sum_over_inputs(std::function<Tensor(const Tensor&)> sum) {
  sum_over_inputs_ = std::move(sum);
}

}  // namespace lockstep::nn
