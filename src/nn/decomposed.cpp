// Linear kernel for DoRA, and its autograd node.
#include "nn/decomposed.h"

#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace lockstep::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Returns the rows [first, first + count) of W, [count, in].
using MatrixRows = std::function<Tensor(int64_t first, int64_t count)>;

/// Returns the squared row norms of W + s B A, or of a range of its columns, in float32. Computed
/// in chunks of rows.
Tensor squares_of_rows(const MatrixRows& matrix, const Tensor& a, const Tensor& b, double scale) {
  const Tensor squares = at::empty({b.size(0)}, b.options().dtype(at::kFloat));
  const Tensor inner = a.detach().to(at::kFloat);
  over_row_parts(b.size(0), 2 * a.size(1), b.device(), [&](int64_t first, int64_t count) {
    const Tensor outer = b.detach().narrow(0, first, count).to(at::kFloat);
    const Tensor w = matrix(first, count).to(at::kFloat);
    squares.narrow(0, first, count).copy_(at::addmm(w, outer, inner, 1, scale).square_().sum(1));
  });
  return squares;
}

/// Non-tensor state of the backward pass, stored in a capsule.
struct DecomposedBeside : torch::CustomClassHolder {
  LowRankFactors factors;  // undefined A and B
  Tensor drawn;
  Tensor norms;  // n, treated as a constant
};

/// Returns u, the direction term that is multiplied by k, for rows starting at `first`, in the type
/// of A: the base output for x' plus the output of the factors.
Tensor directions(
    const Tensor& base, int64_t first, const Tensor& rows, const LowRankFactors& factors) {
  const Tensor part = base.narrow(0, first, rows.size(0)).to(factors.b.scalar_type());
  return at::addmm(part, factors.inner(rows), factors.b.detach().t());
}

/// Computes y of DecomposedLinearKernel as one autograd node. Saves x and the base output for x',
/// each in its own type.
struct Decompose : torch::autograd::Function<Decompose> {
  static Tensor forward(
      AutogradContext* context,
      const Tensor& plain,
      const Tensor& x,
      const Tensor& a,
      const Tensor& b,
      const Tensor& magnitudes,
      const std::optional<Tensor>& of_dropped,
      const std::optional<Tensor>& bias,
      c10::intrusive_ptr<DecomposedBeside> beside) {
    const bool drops = of_dropped.has_value();
    context->save_for_backward({drops ? *of_dropped : plain, x, a, b, magnitudes});
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["beside"] = c10::IValue::make_capsule(beside);
    const LowRankFactors factors = beside->factors.with(a, b);
    const Tensor k = magnitudes / beside->norms;
    const Tensor y = at::empty_like(plain, at::MemoryFormat::Contiguous);
    const Tensor from = as_rows(plain), base = drops ? as_rows(*of_dropped) : from, to = as_rows(y);
    RowParts(factors, x, beside->drawn).visit([&](int64_t first, const Tensor& rows) {
      Tensor part = directions(base, first, rows, factors).mul_(k);
      if (drops) {
        part.add_(from.narrow(0, first, rows.size(0))).sub_(base.narrow(0, first, rows.size(0)));
      }
      if (bias) {
        part.add_(*bias);
      }
      to.narrow(0, first, rows.size(0)).copy_(part);
    });
    return y;
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto beside = c10::static_intrusive_pointer_cast<DecomposedBeside>(
        context->saved_data["beside"].toCapsule());
    const LowRankFactors factors = beside->factors.with(saved[2], saved[3]);
    const Tensor base = as_rows(saved[0]), &x = saved[1], k = saved[4].detach() / beside->norms;
    const bool drops = beside->drawn.defined();
    // Undefined inputs are not counted.
    const size_t dropped = 5, bias = drops ? 6 : 5;
    const auto needs = [&](size_t input) { return context->needs_input_grad(input); };
    LowRankGradients made(
        factors, {needs(1), needs(2), needs(3)}, x.sizes(), x.scalar_type(), beside->drawn);
    const Tensor of_base =
        needs(drops ? dropped : 0) ? at::empty(saved[0].sizes(), saved[0].options()) : Tensor();
    const Tensor of_magnitudes = needs(4) ? at::zeros_like(k) : Tensor();
    const Tensor dy = as_rows(gradients[0]);
    RowParts(factors, x, beside->drawn).visit([&](int64_t first, const Tensor& rows) {
      const int64_t count = rows.size(0);
      const Tensor g = dy.narrow(0, first, count).to(k.scalar_type()), scaled = g * k;
      made.add(first, scaled, rows);
      if (of_base.defined()) {
        as_rows(of_base).narrow(0, first, count).copy_(drops ? scaled - g : scaled);
      }
      if (of_magnitudes.defined()) {
        of_magnitudes.add_(directions(base, first, rows, factors).mul_(g).sum(0));
      }
    });
    tensor_list result(8);
    result[0] = drops ? gradients[0] : of_base;
    result[1] = made.take_x();
    result[2] = made.of_a();
    result[3] = made.of_b();
    result[4] = of_magnitudes.defined() ? of_magnitudes / beside->norms : Tensor();
    result[5] = drops ? of_base : Tensor();
    if (context->saved_data["has_bias"].toBool() && needs(bias)) {
      result[6] = dy.sum(0);
    }
    return result;
  }
};

}  // namespace

Tensor row_norms(const Tensor& matrix, const Tensor& a, const Tensor& b, double scale) {
  const Tensor w = matrix.detach();
  return squares_of_rows(
             [&](int64_t first, int64_t count) { return w.narrow(0, first, count); }, a, b, scale)
      .sqrt();
}

DecomposedLinearKernel::DecomposedLinearKernel(
    std::shared_ptr<LinearKernel> base, double scale, std::shared_ptr<Dropout> dropout)
    : base_(std::move(base)),
      factors_{.scale = scale, .dropout = std::move(dropout), .a = {}, .b = {}},
      bias_(base_->take_bias()) {}

Tensor DecomposedLinearKernel::draw(const ForwardContext& context) const {
  return factors_.dropout->draw(context);
}

const Tensor& DecomposedLinearKernel::norms() const {
  base_->visit_parameters([&](const Parameter& weight) {
    if (weight.name != "weight") {
      return;
    }
    // Version counters only increase, so their sum changes in every step.
    const auto version = static_cast<int64_t>(
        weight.value._version() + factors_.a._version() + factors_.b._version());
    if (norms_.defined() && version == norms_version_) {
      return;
    }
    const at::NoGradGuard no_grad;
    const Tensor squares = squares_of_rows(
        [&](int64_t first, int64_t count) { return base_->matrix_rows(first, count); },
        factors_.a,
        factors_.b,
        factors_.scale);
    norms_ = (sum_over_inputs_ ? sum_over_inputs_(squares) : squares).sqrt();
    norms_version_ = version;
  });
  return norms_;
}

Tensor DecomposedLinearKernel::dropped(const Tensor& x, const Tensor& drawn) const {
  return factors_.rows_of(x, drawn).to(x.scalar_type());
}

Tensor DecomposedLinearKernel::forward(const Tensor& x, const Tensor& drawn) const {
  const Tensor plain = base_->forward(x, {});
  if (!factors_.are_on) {
    return bias_.defined() ? plain + bias_ : plain;
  }
  auto beside = c10::make_intrusive<DecomposedBeside>();
  beside->factors = {.scale = factors_.scale, .dropout = factors_.dropout, .a = {}, .b = {}};
  beside->drawn = drawn;
  beside->norms = norms();
  return Decompose::apply(
      plain,
      x,
      factors_.a,
      factors_.b,
      magnitudes_,
      drawn.defined() ? std::optional(base_->forward(dropped(x, drawn), {})) : std::nullopt,
      bias_.defined() ? std::optional(bias_) : std::nullopt,
      beside);
}

Tensor DecomposedLinearKernel::input_gradient(const Tensor& y_gradient, const Tensor& drawn) const {
  const Tensor k = magnitudes_.detach() / norms();
  const Tensor dy = as_rows(y_gradient);
  const Tensor of_products = at::empty_like(y_gradient, at::MemoryFormat::Contiguous);
  over_row_parts(dy.size(0), 2 * dy.size(1), dy.device(), [&](int64_t first, int64_t count) {
    const Tensor part = dy.narrow(0, first, count).to(k.scalar_type());
    as_rows(of_products).narrow(0, first, count).copy_(part * (drawn.defined() ? k - 1 : k));
  });
  const Tensor of_base = base_->input_gradient(of_products, {});
  LowRankGradients made(
      factors_,
      {.x = true},
      of_base.sizes(),
      drawn.defined() ? k.scalar_type() : of_base.scalar_type(),
      /*drawn=*/{},
      of_base);
  over_row_parts(
      dy.size(0), dy.size(1) + of_base.size(-1), dy.device(), [&](int64_t first, int64_t count) {
        made.add(first, dy.narrow(0, first, count).to(k.scalar_type()) * k, {});
      });
  if (!drawn.defined()) {
    return made.take_x();
  }
  return (base_->input_gradient(y_gradient, {}) + factors_.dropout->apply(made.take_x(), drawn))
      .to(y_gradient.scalar_type());
}

void DecomposedLinearKernel::accumulate_weight_gradients(
    const Tensor& y_gradient, const Tensor& x, const Tensor& drawn) const {
  const Tensor k = magnitudes_.detach() / norms();
  if (bias_.defined() && bias_.requires_grad()) {
    accumulate_gradient(bias_, y_gradient.flatten(0, -2).sum(0));
  }
  if (base_->is_trained()) {
    const Tensor of_dropped =
        ((k - 1) * y_gradient.to(k.scalar_type())).to(y_gradient.scalar_type());
    base_->accumulate_weight_gradients(y_gradient, x, {});
    base_->accumulate_weight_gradients(of_dropped, dropped(x, drawn), {});
  }
  const bool has_magnitudes = magnitudes_.requires_grad();
  const Tensor base = has_magnitudes ? as_rows(base_->forward(dropped(x, drawn), {})) : Tensor();
  const Tensor of_magnitudes = at::zeros_like(k), dy = as_rows(y_gradient);
  LowRankGradients made(
      factors_,
      {.x = false, .a = factors_.a.requires_grad(), .b = factors_.b.requires_grad()},
      x.sizes(),
      x.scalar_type(),
      drawn);
  RowParts(factors_, x, drawn).visit([&](int64_t first, const Tensor& rows) {
    const Tensor g = dy.narrow(0, first, rows.size(0)).to(k.scalar_type());
    made.add(first, g * k, rows);
    if (has_magnitudes) {
      of_magnitudes.add_(directions(base, first, rows, factors_).mul_(g).sum(0));
    }
  });
  made.accumulate();
  if (has_magnitudes) {
    accumulate_gradient(magnitudes_, of_magnitudes / norms());
  }
}

bool DecomposedLinearKernel::is_trained() const {
  return factors_.are_trained() || magnitudes_.requires_grad() || base_->is_trained() ||
         (bias_.defined() && bias_.requires_grad());
}

void DecomposedLinearKernel::visit_parameters(const ParameterFunction& function) {
  base_->visit_parameters([&](const Parameter& parameter) {
    if (parameter.name != "bias") {
      function(parameter);
    }
  });
  function({"bias", bias_, 0, -1});
  factors_.visit(function);
  function({"lora_magnitude_vector", magnitudes_, 0, -1});
}

Tensor DecomposedLinearKernel::take_bias() {
  return std::exchange(bias_, Tensor());
}

void DecomposedLinearKernel::set_sum_over_inputs(std::function<Tensor(const Tensor&)> sum) {
  sum_over_inputs_ = std::move(sum);
}

}  // namespace lockstep::nn
