// Layer norm and RMS norm: CPU loops, CUDA kernels, and ATen fallbacks.
#include "ops/norms.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/cpu/host_loops.h"
#include "ops/cpu/vector.h"
#include "ops/cpu/vector_types.h"
#include "ops/cuda_loops.h"
#include "ops/gradient_sink.h"

namespace lockstep::ops {
namespace {

using vector::Floats;
using vector::kLanes;
using vector::load_up_to;
using vector::store_up_to;

enum class Kind { kLayer, kRms, kExactRms, kRmsAroundOne };

constexpr RmsForm form_of(Kind kind) {
  return kind == Kind::kRms        ? RmsForm::kRounded
         : kind == Kind::kExactRms ? RmsForm::kExact
                                   : RmsForm::kAroundOne;
}

/// Returns the factor by which the normalized value is multiplied.
template <Kind kKind>
LOCKSTEP_INLINE Floats factor(const Floats& weight) {
  return kKind == Kind::kRmsAroundOne ? weight + 1.0F : weight;
}

/// Rounds a value to type T and converts it back.
template <class T>
LOCKSTEP_INLINE Floats rounded(const Floats& value) {
  T stored[kLanes];
  vector::store(stored, value);
  return vector::load(stored);
}

/// Sets the lanes beyond the end to zero after a mean was subtracted.
LOCKSTEP_INLINE Floats first_lanes(const Floats& all, int64_t count) {
  Floats value = all;
  for (int64_t lane = std::min(count, kLanes); lane < kLanes; ++lane) {
    value[lane] = 0;
  }
  return value;
}

/// Forward pass of the rows [begin, end) of [rows, C]. Writes y and, for each row, the mean
/// (kLayer) and the inverse deviation. With a residual, normalizes x + residual and writes it to
/// `sum`.
template <class T, Kind kKind>
struct Forward {
  LOCKSTEP_INLINE static void run(
      const T* x,
      const T* residual,
      T* sum,
      const T* weight,
      const T* bias,
      T* y,
      float* mean,
      float* inverse,
      int64_t begin,
      int64_t end,
      int64_t size,
      float eps) {
    for (int64_t row = begin; row < end; ++row) {
      const T* in = x + row * size;
      T* out = y + row * size;
      if (residual != nullptr) {
        for (int64_t i = 0; i < size; i += kLanes) {
          const Floats added =
              load_up_to(in + i, size - i) + load_up_to(residual + row * size + i, size - i);
          store_up_to(sum + row * size + i, added, size - i);
        }
        in = sum + row * size;
      }
      float middle = 0;
      if constexpr (kKind == Kind::kLayer) {
        Floats total{};
        for (int64_t i = 0; i < size; i += kLanes) {
          total += load_up_to(in + i, size - i);
        }
        middle = vector::sum(total) / static_cast<float>(size);
        mean[row] = middle;
      }
      Floats squares{};
      for (int64_t i = 0; i < size; i += kLanes) {
        const Floats distance = first_lanes(load_up_to(in + i, size - i) - middle, size - i);
        squares += distance * distance;
      }
      const float scale = 1 / std::sqrt(vector::sum(squares) / static_cast<float>(size) + eps);
      inverse[row] = scale;
      for (int64_t i = 0; i < size; i += kLanes) {
        const Floats normal = (load_up_to(in + i, size - i) - middle) * scale;
        const Floats w = factor<kKind>(load_up_to(weight + i, size - i));
        if constexpr (kKind == Kind::kLayer) {
          store_up_to(out + i, normal * w + load_up_to(bias + i, size - i), size - i);
        } else {
          store_up_to(out + i, (kKind == Kind::kRms ? rounded<T>(normal) : normal) * w, size - i);
        }
      }
    }
  }
};

/// Backward pass of the rows [begin, end). Computes the gradient of x, including that of the sum if
/// any, and adds the gradients of weight and bias to float32 sums.
template <class T, Kind kKind>
struct Backward {
  LOCKSTEP_INLINE static void run(
      const T* gradient,
      const T* sum_gradient,
      const T* x,
      const T* weight,
      const float* mean,
      const float* inverse,
      T* x_gradient,
      float* weight_sum,
      float* bias_sum,
      int64_t begin,
      int64_t end,
      int64_t size) {
    for (int64_t row = begin; row < end; ++row) {
      const T* g = gradient + row * size;
      const T* in = x + row * size;
      T* out = x_gradient + row * size;
      const float middle = kKind == Kind::kLayer ? mean[row] : 0;
      const float scale = inverse[row];
      Floats sums{}, products{};
      for (int64_t i = 0; i < size; i += kLanes) {
        const Floats dy = load_up_to(g + i, size - i);
        const Floats normal =
            first_lanes((load_up_to(in + i, size - i) - middle) * scale, size - i);
        const Floats weighted = dy * factor<kKind>(load_up_to(weight + i, size - i));
        sums += weighted;
        products += weighted * normal;
        const Floats seen = kKind == Kind::kRms ? rounded<T>(normal) : normal;
        store_up_to(weight_sum + i, load_up_to(weight_sum + i, size - i) + dy * seen, size - i);
        if constexpr (kKind == Kind::kLayer) {
          store_up_to(bias_sum + i, load_up_to(bias_sum + i, size - i) + dy, size - i);
        }
      }
      const float mean_product = vector::sum(products) / static_cast<float>(size);
      const float mean_gradient =
          kKind == Kind::kLayer ? vector::sum(sums) / static_cast<float>(size) : 0;
      for (int64_t i = 0; i < size; i += kLanes) {
        const Floats normal = (load_up_to(in + i, size - i) - middle) * scale;
        const Floats weighted =
            load_up_to(g + i, size - i) * factor<kKind>(load_up_to(weight + i, size - i));
        Floats dx = (weighted - mean_gradient - normal * mean_product) * scale;
        if (sum_gradient != nullptr) {
          dx += load_up_to(sum_gradient + row * size + i, size - i);
        }
        store_up_to(out + i, dx, size - i);
      }
    }
  }
};

struct Normalized {
  Tensor y, sum, mean, inverse;
};

/// `residual` and `bias` may be undefined.
template <class T, Kind kKind>
Normalized forward_on_cpu(
    const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps) {
  const int64_t size = x.size(-1), rows = x.numel() / size;
  const auto floats = x.options().dtype(at::kFloat);
  Normalized result{
      at::empty_like(x),
      residual.defined() ? at::empty_like(x) : Tensor(),
      at::empty({kKind == Kind::kLayer ? rows : 0}, floats),
      at::empty({rows}, floats)};
  auto* y = static_cast<T*>(result.y.mutable_data_ptr());
  auto* sum = residual.defined() ? static_cast<T*>(result.sum.mutable_data_ptr())
                                 : static_cast<T*>(nullptr);
  auto* mean = result.mean.mutable_data_ptr<float>();
  auto* inverse = result.inverse.mutable_data_ptr<float>();
  at::parallel_for(0, rows, std::max<int64_t>(1, 16384 / size), [&](int64_t begin, int64_t end) {
    vector::dispatch<Forward<T, kKind>>(
        elements<T>(x),
        elements<T>(residual),
        sum,
        elements<T>(weight),
        elements<T>(bias),
        y,
        mean,
        inverse,
        begin,
        end,
        size,
        static_cast<float>(eps));
  });
  return result;
}

/// Tensors saved by the forward pass.
struct Saved {
  Tensor x, weight, bias, mean, inverse;  // bias is undefined for RMS norms
};

template <class T, Kind kKind>
NormGradients backward_on_cpu(
    const Tensor& gradient, const Tensor& sum_gradient, const Saved& saved) {
  const Tensor& x = saved.x;
  const int64_t size = x.size(-1), rows = x.numel() / size;
  Tensor x_gradient = at::empty_like(x);
  auto* out = static_cast<T*>(x_gradient.mutable_data_ptr());
  // Fixed groups of rows are summed in order, so that the result does not depend on the number of
  // threads.
  const int64_t run = std::max<int64_t>(64, (rows + 31) / 32), runs = (rows + run - 1) / run;
  Tensor sums = at::zeros({2, runs, size}, x.options().dtype(at::kFloat));
  auto* weight_sums = sums.mutable_data_ptr<float>();
  auto* bias_sums = weight_sums + runs * size;
  at::parallel_for(0, runs, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      vector::dispatch<Backward<T, kKind>>(
          elements<T>(gradient),
          elements<T>(sum_gradient),
          elements<T>(x),
          elements<T>(saved.weight),
          elements<float>(saved.mean),
          elements<float>(saved.inverse),
          out,
          weight_sums + i * size,
          bias_sums + i * size,
          i * run,
          std::min((i + 1) * run, rows),
          size);
    }
  });
  const Tensor total = sums.sum(1);
  const auto type = x.scalar_type();
  return {x_gradient, total[0].to(type), kKind == Kind::kLayer ? total[1].to(type) : Tensor()};
}

Tensor dense(const Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

/// Returns the tensor with the alignment that the kernels' vector loads require.
Tensor in_packs(const Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  const Tensor whole = tensor.contiguous();
  return reinterpret_cast<uintptr_t>(whole.const_data_ptr()) % 16 == 0 ? whole : whole.clone();
}

template <Kind kKind>
Normalized forward_on_device(
    const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps) {
  const Tensor in = in_packs(x), more = in_packs(residual);
  const auto of_rows = [&] {
    return at::empty({in.numel() / in.size(-1)}, in.options().dtype(at::kFloat));
  };
  const Normalized result{
      at::empty_like(in),
      more.defined() ? at::empty_like(in) : Tensor(),
      kKind == Kind::kLayer ? of_rows() : Tensor(),
      of_rows()};
  cuda_loops().norm(
      {in,
       more,
       in_packs(weight),
       in_packs(bias),
       result.sum,
       result.y,
       result.mean,
       result.inverse},
      static_cast<float>(eps),
      form_of(kKind));
  return result;
}

/// Memory for a parameter's gradient: the memory of its sink if available; otherwise newly
/// allocated.
struct GradientMemory {
  Tensor memory;
  bool is_placed;

  explicit GradientMemory(const Tensor& parameter)
      : memory(memory_of_gradient(parameter)),
        is_placed(memory.defined()) {
    if (!is_placed) {
      memory = at::empty_like(parameter);
    }
  }
  Tensor to_return() const { return is_placed ? Tensor() : memory; }
};

template <Kind kKind>
NormGradients backward_on_device(
    const Tensor& gradient, const Tensor& sum_gradient, const Saved& saved) {
  const Tensor x = in_packs(saved.x), x_gradient = at::empty_like(x);
  const GradientMemory weight(saved.weight);
  std::optional<GradientMemory> bias;
  if (kKind == Kind::kLayer) {
    bias.emplace(saved.bias);
  }
  cuda_loops().norm_backward(
      {in_packs(gradient),
       in_packs(sum_gradient),
       x,
       in_packs(saved.weight),
       saved.mean,
       saved.inverse},
      {x_gradient, weight.memory, bias ? bias->memory : Tensor()},
      form_of(kKind));
  return {x_gradient, weight.to_return(), bias ? bias->to_return() : Tensor()};
}

template <Kind kKind>
Normalized run_forward(
    const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps) {
  if (!x.is_cpu()) {
    return forward_on_device<kKind>(x, residual, weight, bias, eps);
  }
  return x.scalar_type() == at::kFloat
             ? forward_on_cpu<float, kKind>(x, residual, weight, bias, eps)
             : forward_on_cpu<vector::Bfloat16, kKind>(x, residual, weight, bias, eps);
}

template <Kind kKind>
NormGradients run_backward(const Tensor& gradient, const Tensor& sum_gradient, const Saved& saved) {
  if (!saved.x.is_cpu()) {
    return backward_on_device<kKind>(gradient, sum_gradient, saved);
  }
  return saved.x.scalar_type() == at::kFloat
             ? backward_on_cpu<float, kKind>(gradient, sum_gradient, saved)
             : backward_on_cpu<vector::Bfloat16, kKind>(gradient, sum_gradient, saved);
}

/// Returns {y}; {y, x + residual} if there is a residual; {y, x} if x is also used outside the
/// norm.
template <Kind kKind>
struct NormFunction : torch::autograd::Function<NormFunction<kKind>> {
  static torch::autograd::tensor_list forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      const std::optional<Tensor>& residual,
      const Tensor& weight,
      const std::optional<Tensor>& bias,
      double eps,
      bool is_beside) {
    const Tensor in = x.contiguous(), more = dense(residual.value_or(Tensor()));
    const Tensor shift = dense(bias.value_or(Tensor()));
    const Normalized result = run_forward<kKind>(in, more, dense(weight), shift, eps);
    context->saved_data["adds"] = more.defined();
    context->set_materialize_grads(false);
    context->save_for_backward(
        {more.defined() ? result.sum : in,
         weight,
         bias.value_or(Tensor()),
         result.mean,
         result.inverse});
    if (more.defined()) {
      return {result.y, result.sum};
    }
    if (is_beside) {
      return {result.y, x};
    }
    return {result.y};
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const bool adds = context->saved_data["adds"].toBool();
    const Tensor more = gradients.size() == 2 ? dense(gradients[1]) : Tensor();
    if (!gradients[0].defined()) {  // the output of the norm was not used
      return {more, adds ? more : Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
    }
    const auto variables = context->get_saved_variables();
    const Saved saved{variables[0], dense(variables[1]), variables[2], variables[3], variables[4]};
    const NormGradients result = run_backward<kKind>(dense(gradients[0]), more, saved);
    return {result.x, adds ? result.x : Tensor(), result.weight, result.bias, Tensor(), Tensor()};
  }
};

bool has_norm_loops(const Tensor& x, const Tensor& weight) {
  return has_host_loops(x) && x.numel() > 0 && weight.scalar_type() == x.scalar_type() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

/// Returns true if has_norm_loops() or if a CUDA kernel supports the tensors. `bias` is only used
/// for layer norms.
bool has_loops(const Tensor& x, const Tensor& weight, const Tensor& bias = {}) {
  if (bias.defined() && bias.scalar_type() != x.scalar_type()) {
    return false;
  }
  if (!x.is_cuda() || cuda_loops().takes_norm == nullptr) {
    return has_norm_loops(x, weight);
  }
  return x.numel() > 0 && weight.scalar_type() == x.scalar_type() &&
         cuda_loops().takes_norm(x, bias.defined());
}

bool are_alike(const Tensor& x, const Tensor& residual) {
  return residual.sizes() == x.sizes() && residual.scalar_type() == x.scalar_type();
}

bool has_gradient(const Tensor& x) {
  return at::GradMode::is_enabled() && x.requires_grad();
}

torch::autograd::tensor_list rms_with_loops(
    const Tensor& x,
    const std::optional<Tensor>& residual,
    const Tensor& weight,
    double eps,
    RmsForm form,
    bool is_beside = false) {
  const std::optional<Tensor> none;
  switch (form) {
    case RmsForm::kExact:
      return NormFunction<Kind::kExactRms>::apply(x, residual, weight, none, eps, is_beside);
    case RmsForm::kAroundOne:
      return NormFunction<Kind::kRmsAroundOne>::apply(x, residual, weight, none, eps, is_beside);
    case RmsForm::kRounded:
      break;
  }
  return NormFunction<Kind::kRms>::apply(x, residual, weight, none, eps, is_beside);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (has_loops(x, weight, bias)) {
    return NormFunction<Kind::kLayer>::apply(x, std::nullopt, weight, bias, eps, false)[0];
  }
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, RmsForm form) {
  if (has_loops(x, weight)) {
    return rms_with_loops(x, std::nullopt, weight, eps, form)[0];
  }
  const bool is_float = x.scalar_type() == at::kFloat;
  if (x.is_cuda() && (form != RmsForm::kAroundOne || is_float)) {  // ATen has a fused kernel for
                                                                   // these forms
    return at::rms_norm(x, {x.size(-1)}, form == RmsForm::kAroundOne ? weight + 1 : weight, eps);
  }
  const Tensor high = x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  const Tensor normal = high * at::rsqrt(high.square().mean({-1}, /*keepdim=*/true) + eps);
  if (form == RmsForm::kRounded) {
    return weight * normal.to(x.scalar_type());
  }
  const Tensor factor = weight.to(high.scalar_type());
  return (normal * (form == RmsForm::kAroundOne ? factor + 1 : factor)).to(x.scalar_type());
}

SumAndNorm add_layer_norm(
    const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps) {
  if (has_loops(x, weight, bias) && are_alike(x, residual)) {
    const auto both = NormFunction<Kind::kLayer>::apply(x, residual, weight, bias, eps, false);
    return {both[1], both[0]};
  }
  const Tensor sum = x + residual;
  return {sum, layer_norm(sum, weight, bias, eps)};
}

SumAndNorm add_rms_norm(
    const Tensor& x, const Tensor& residual, const Tensor& weight, double eps, RmsForm form) {
  if (has_loops(x, weight) && are_alike(x, residual)) {
    const auto both = rms_with_loops(x, residual, weight, eps, form);
    return {both[1], both[0]};
  }
  const Tensor sum = x + residual;
  return {sum, rms_norm(sum, weight, eps, form)};
}

SumAndNorm layer_norm_beside(
    const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  if (has_loops(x, weight, bias) && has_gradient(x)) {
    const auto both = NormFunction<Kind::kLayer>::apply(x, std::nullopt, weight, bias, eps, true);
    return {both[1], both[0]};
  }
  return {x, layer_norm(x, weight, bias, eps)};
}

SumAndNorm rms_norm_beside(const Tensor& x, const Tensor& weight, double eps, RmsForm form) {
  if (has_loops(x, weight) && has_gradient(x)) {
    const auto both = rms_with_loops(x, std::nullopt, weight, eps, form, /*is_beside=*/true);
    return {both[1], both[0]};
  }
  return {x, rms_norm(x, weight, eps, form)};
}

}  // namespace lockstep::ops
