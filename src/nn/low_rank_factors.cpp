// Low-rank products and their gradients, computed in chunks of rows.
#include "nn/low_rank_factors.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "nn/layers.h"
#include "ops/linear.h"

namespace lockstep::nn {
namespace {

constexpr int64_t kLeastRows = 64;
constexpr int64_t kCacheBytes = int64_t{2} << 20;     // part of a CPU core's cache
constexpr int64_t kDeviceBytes = int64_t{128} << 20;  // larger on devices, where small products are
                                                      // inefficient

/// Returns true if the products of these rows with the factors do not require the rows in float32.
bool multiplies_whole(const LowRankFactors& factors, const Tensor& rows, const Tensor& drawn) {
  return !drawn.defined() && factors.a.scalar_type() == at::kFloat && ops::multiplies_factors(rows);
}

}  // namespace

void over_row_parts(
    int64_t rows,
    int64_t numbers,
    c10::Device device,
    const std::function<void(int64_t first, int64_t count)>& function) {
  const int64_t bytes = device.is_cpu() ? kCacheBytes * at::get_num_threads() : kDeviceBytes;
  const int64_t fit = bytes / std::max<int64_t>(1, numbers * 4) / kLeastRows * kLeastRows;
  const int64_t each = std::max(kLeastRows, fit);
  for (int64_t first = 0; first < rows; first += each) {
    function(first, std::min(each, rows - first));
  }
}

Tensor as_rows(const Tensor& x) {
  const int64_t rows = c10::multiply_integers(x.sizes().slice(0, static_cast<size_t>(x.dim() - 1)));
  return x.reshape({rows, x.size(-1)});  // -1 would be ambiguous for a width of 0
}

Tensor LowRankFactors::rows_of(const Tensor& x, const Tensor& drawn) const {
  return dropout->apply(x.to(a.scalar_type()), drawn);
}

Tensor LowRankFactors::inner(const Tensor& rows) const {
  return at::mm(rows, a.detach().t()).mul_(scale);
}

Tensor LowRankFactors::add_to(Tensor y, const Tensor& x, const Tensor& drawn) const {
  y = y.contiguous();
  const Tensor to = as_rows(y), rows = as_rows(x);
  if (multiplies_whole(*this, to, drawn) && multiplies_whole(*this, rows, drawn)) {
    ops::write_factor_product(
        to, ops::times_factor(rows, a.detach()).mul_(scale), b.detach().t(), ops::Into::kAdded);
    return y;
  }
  RowParts(*this, x, drawn).visit([&](int64_t first, const Tensor& part) {
    const Tensor some = to.narrow(0, first, part.size(0));
    some.copy_(at::addmm(some.to(b.scalar_type()), inner(part), b.detach().t()));
  });
  return y;
}

bool LowRankFactors::are_trained() const {
  return a.requires_grad() || b.requires_grad();
}

void LowRankFactors::visit(const ParameterFunction& function) {
  function({"lora_A.weight", a, -1, 1});
  function({"lora_B.weight", b, 0, -1});
}

RowParts::RowParts(const LowRankFactors& factors, const Tensor& x, const Tensor& drawn)
    : factors_(factors),
      rows_(as_rows(drawn.defined() ? factors.rows_of(x, drawn) : x)) {}

void RowParts::visit(const std::function<void(int64_t first, const Tensor& rows)>& function) const {
  const int64_t numbers = factors_.a.size(1) + factors_.b.size(0);
  over_row_parts(rows_.size(0), numbers, rows_.device(), [&](int64_t first, int64_t count) {
    function(first, rows_.narrow(0, first, count).to(factors_.a.scalar_type()));
  });
}

LowRankGradients::LowRankGradients(
    const LowRankFactors& factors,
    Wanted wanted,
    at::IntArrayRef x_sizes,
    at::ScalarType x_type,
    const Tensor& drawn,
    const Tensor& onto)
    : factors_(factors),
      wanted_(wanted),
      x_type_(x_type),
      drawn_(drawn),
      onto_(onto) {
  const Tensor a = factors.a.detach(), b = factors.b.detach();
  if (wanted.x) {
    // With a mask, values are rounded after the mask has been applied.
    const auto type = drawn.defined() ? a.scalar_type() : x_type;
    const bool is_there = onto.defined() && !drawn.defined() && onto.scalar_type() == type;
    x_ = is_there ? onto.contiguous() : at::empty(x_sizes, a.options().dtype(type));
  }
  a_ = wanted.a ? at::zeros_like(a) : Tensor();
  b_ = wanted.b ? at::zeros_like(b) : Tensor();
}

void LowRankGradients::add_all(const Tensor& gradient, const Tensor& x) {
  const Tensor dy = as_rows(gradient), rows = x.defined() ? as_rows(x) : x;
  const bool has_rows = !rows.defined() || multiplies_whole(factors_, rows, drawn_);
  if (has_rows && multiplies_whole(factors_, dy, drawn_) && x_type_ == at::kBFloat16) {
    add_products(dy, rows);
    return;
  }
  const auto part = [&](int64_t first, int64_t count) {
    return dy.narrow(0, first, count).to(factors_.b.scalar_type());
  };
  if (x.defined()) {
    RowParts(factors_, x, drawn_).visit([&](int64_t first, const Tensor& some) {
      add(first, part(first, some.size(0)), some);
    });
    return;
  }
  over_row_parts(
      dy.size(0), dy.size(1) + factors_.a.size(1), dy.device(), [&](int64_t first, int64_t count) {
        add(first, part(first, count), {});
      });
}

void LowRankGradients::add_products(const Tensor& gradient, const Tensor& x) {
  const Tensor a = factors_.a.detach(), b = factors_.b.detach();
  if (wanted_.b) {
    const Tensor inner = ops::times_factor(x, a).mul_(factors_.scale);
    b_.copy_(ops::factor_times(inner, gradient).t());
  }
  if (!wanted_.x && !wanted_.a) {
    return;
  }
  const Tensor of_inner = ops::times_factor(gradient, b.t()).mul_(factors_.scale);
  if (wanted_.a) {
    a_.copy_(ops::factor_times(of_inner, x));
  }
  if (wanted_.x) {
    if (onto_.defined() && !x_.is_same(onto_)) {
      x_.copy_(onto_);
    }
    ops::write_factor_product(
        as_rows(x_), of_inner, a, onto_.defined() ? ops::Into::kAdded : ops::Into::kNew);
  }
}

void LowRankGradients::add(int64_t first, const Tensor& gradient, const Tensor& rows) {
  const int64_t count = gradient.size(0);
  if (wanted_.b) {
    b_.addmm_(gradient.t(), factors_.inner(rows));
  }
  if (!wanted_.x && !wanted_.a) {
    return;
  }
  const Tensor of_inner = at::mm(gradient, factors_.b.detach()).mul_(factors_.scale);
  if (wanted_.a) {
    a_.addmm_(of_inner.t(), rows);
  }
  if (wanted_.x) {
    const Tensor a = factors_.a.detach();
    const bool adds = onto_.defined() && !drawn_.defined();
    as_rows(x_)
        .narrow(0, first, count)
        .copy_(
            adds
                ? at::addmm(as_rows(onto_).narrow(0, first, count).to(a.scalar_type()), of_inner, a)
                : at::mm(of_inner, a));
  }
}

void LowRankGradients::accumulate() const {
  if (a_.defined()) {
    accumulate_gradient(factors_.a, a_);
  }
  if (b_.defined()) {
    accumulate_gradient(factors_.b, b_);
  }
}

Tensor LowRankGradients::take_x() {
  if (!x_.defined() || !drawn_.defined()) {
    return std::exchange(x_, Tensor());
  }
  // Ensures that only two float32 tensors of this size exist at once.
  x_ = factors_.dropout->apply(x_, drawn_);
  if (onto_.defined()) {
    x_.add_(onto_);
  }
  return std::exchange(x_, Tensor()).to(x_type_);
}

}  // namespace lockstep::nn
