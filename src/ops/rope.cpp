#include "ops/rope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/vector.h"

namespace lockstep::ops {
namespace {

/// The heads of one token, `heads` rows of `size` from `from` (a row every `stride`) to `to`
/// (dense).
template <class T>
struct RotateToken {
  LOCKSTEP_INLINE static void run(
      const T* from,
      int64_t stride,
      T* to,
      const float* cos,
      const float* sin,
      float sign,
      int64_t heads,
      int64_t size,
      int64_t half) {
    for (int64_t head = 0; head < heads; ++head) {
      const T* __restrict in = from + head * stride;
      T* __restrict out = to + head * size;
      for (int64_t i = 0; i < half; ++i) {
        const float a = vector::widen(in[i]), b = vector::widen(in[i + half]);
        const float c = cos[i], s = sin[i] * sign;
        vector::narrow(a * c - b * s, out[i]);
        vector::narrow(b * c + a * s, out[i + half]);
      }
      for (int64_t i = 2 * half; i < size; ++i) {
        out[i] = in[i];
      }
    }
  }
};

template <class T>
void rotate_on_cpu(const Tensor& x, Tensor& y, const Tensor& cos, const Tensor& sin, float sign) {
  const auto* in = static_cast<const T*>(x.const_data_ptr());
  auto* out = static_cast<T*>(y.mutable_data_ptr());
  const auto* cosines = cos.const_data_ptr<float>();
  const auto* sines = sin.const_data_ptr<float>();
  const int64_t length = x.size(1), heads = x.size(2), size = x.size(3), half = cos.size(-1);
  const bool by_row = cos.dim() == 3;
  at::parallel_for(
      0,
      x.size(0) * length,
      std::max<int64_t>(1, 16384 / (heads * size)),
      [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) {
          const int64_t row = token / length, position = token % length;
          const int64_t angles = (by_row ? token : position) * half;
          vector::dispatch<RotateToken<T>>(
              in + row * x.stride(0) + position * x.stride(1),
              x.stride(2),
              out + token * heads * size,
              cosines + angles,
              sines + angles,
              sign,
              heads,
              size,
              half);
        }
      });
}

Tensor rotate_by_tensors(const Tensor& x, const Tensor& cos, const Tensor& sin, float sign) {
  const int64_t half = cos.size(-1);
  const auto high = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor c = cos.unsqueeze(-2).to(high),
               s = sin.unsqueeze(-2).to(high) * sign;  // [.., T, 1, d]
  const Tensor a = x.narrow(-1, 0, half).to(high), b = x.narrow(-1, half, half).to(high);
  return at::cat(
      {(a * c - b * s).to(x.scalar_type()),
       (b * c + a * s).to(x.scalar_type()),
       x.narrow(-1, 2 * half, x.size(-1) - 2 * half)},
      -1);
}

Tensor rotate_by(const Tensor& x, const Tensor& cos, const Tensor& sin, float sign) {
  const auto type = x.scalar_type();
  if (!x.device().is_cpu() || (type != at::kFloat && type != at::kBFloat16) || x.numel() == 0) {
    return rotate_by_tensors(x, cos, sin, sign);
  }
  const Tensor in = x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous();
  Tensor out = at::empty(x.sizes(), x.options());
  if (type == at::kFloat) {
    rotate_on_cpu<float>(in, out, cos, sin, sign);
  } else {
    rotate_on_cpu<vector::Bfloat16>(in, out, cos, sin, sign);
  }
  return out;
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      const Tensor& cos,
      const Tensor& sin) {
    context->saved_data["cos"] = cos;
    context->saved_data["sin"] = sin;
    return rotate_by(x, cos, sin, 1);
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    // The rotation is orthogonal: its transpose turns back.
    return {
        rotate_by(
            gradient[0],
            context->saved_data["cos"].toTensor(),
            context->saved_data["sin"].toTensor(),
            -1),
        Tensor(),
        Tensor()};
  }
};

}  // namespace

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const bool fits = x.dim() == 4 && cos.sizes() == sin.sizes() &&
                    (cos.dim() == 2 || (cos.dim() == 3 && cos.size(0) == x.size(0))) &&
                    cos.size(-2) == x.size(1) && 2 * cos.size(-1) <= x.size(3);
  if (!fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "rotary angles {} for heads {}",
            fmt::join(cos.sizes(), "x"),
            fmt::join(x.sizes(), "x")));
  }
  return RotateFunction::apply(x, cos.contiguous(), sin.contiguous());
}

}  // namespace lockstep::ops
