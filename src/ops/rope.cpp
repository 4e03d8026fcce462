// Rotary position embeddings, forward and backward.
#include "ops/rope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/vector.h"
#include "ops/cuda_loops.h"

namespace lockstep::ops {
namespace {

/// Rotates the heads of one token: reads `heads` rows of `size` values from `from` (row stride
/// `stride`) and writes them to `to` (row stride `to_stride`).
template <class T, RotaryPairs kPairs>
struct RotateToken {
  LOCKSTEP_INLINE static void run(
      const T* from,
      int64_t stride,
      T* to,
      int64_t to_stride,
      const float* cos,
      const float* sin,
      float sign,
      int64_t heads,
      int64_t size,
      int64_t half) {
    for (int64_t head = 0; head < heads; ++head) {
      const T* __restrict in = from + head * stride;
      T* __restrict out = to + head * to_stride;
      constexpr bool kNear = kPairs == RotaryPairs::kNeighbours;
      for (int64_t i = 0; i < half; ++i) {
        const int64_t first = kNear ? 2 * i : i, second = kNear ? first + 1 : i + half;
        const float a = vector::widen(in[first]), b = vector::widen(in[second]);
        const float c = cos[i], s = sin[i] * sign;
        vector::narrow(a * c - b * s, out[first]);
        vector::narrow(b * c + a * s, out[second]);
      }
      for (int64_t i = 2 * half; i < size; ++i) {
        out[i] = in[i];
      }
    }
  }
};

/// Both x and y are [B, T, H, D] with a dense last dimension.
template <class T, RotaryPairs kPairs>
void rotate_on_cpu(
    const Tensor& x, const Tensor& y, const Tensor& cos, const Tensor& sin, float sign) {
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
          vector::dispatch<RotateToken<T, kPairs>>(
              in + row * x.stride(0) + position * x.stride(1),
              x.stride(2),
              out + row * y.stride(0) + position * y.stride(1),
              y.stride(2),
              cosines + angles,
              sines + angles,
              sign,
              heads,
              size,
              half);
        }
      });
}

Tensor rotate_by_tensors(
    const Tensor& x, const Tensor& cos, const Tensor& sin, float sign, RotaryPairs pairs) {
  const int64_t half = cos.size(-1);
  const auto high = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor c = cos.unsqueeze(-2).to(high),
               s = sin.unsqueeze(-2).to(high) * sign;  // [.., T, 1, d]
  const Tensor turned = x.narrow(-1, 0, 2 * half),
               rest = x.narrow(-1, 2 * half, x.size(-1) - 2 * half);
  const int64_t dim = pairs == RotaryPairs::kHalves ? -2 : -1;  // dimension of the two values of a
                                                                // pair
  const auto by_pairs =
      dim == -2 ? turned.unflatten(-1, {2, half}) : turned.unflatten(-1, {half, 2});
  const Tensor a = by_pairs.select(dim, 0).to(high), b = by_pairs.select(dim, 1).to(high);
  const Tensor both = at::stack({a * c - b * s, b * c + a * s}, dim).flatten(-2);
  return at::cat({both.to(x.scalar_type()), rest}, -1);
}

bool has_cuda_rotation(const Tensor& x, const Tensor& cos, RotaryPairs pairs) {
  const auto type = x.scalar_type();
  return pairs == RotaryPairs::kHalves && x.is_cuda() && cuda_loops().rotate != nullptr &&
         x.numel() > 0 && cos.scalar_type() == at::kFloat &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

/// Returns the layout of the heads of `x` and `out`, both [B, T, H, D].
RotatedHeads heads_of(const Tensor& x, const Tensor& out, const Tensor& cos) {
  RotatedHeads heads{x.size(0), x.size(1), x.size(2), x.size(3), cos.size(-1), cos.dim() == 3};
  for (int64_t dim = 0; dim < 3; ++dim) {
    heads.from_stride[dim] = x.stride(dim);
    heads.to_stride[dim] = out.stride(dim);
  }
  return heads;
}

/// Rotates x into `out`.
template <RotaryPairs kPairs = RotaryPairs::kHalves>
void rotate_into(
    const Tensor& out, const Tensor& x, const Tensor& cos, const Tensor& sin, float sign) {
  const auto type = x.scalar_type();
  if (has_cuda_rotation(x, cos, kPairs)) {
    const Tensor in = x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous();
    cuda_loops().rotate(in, out, cos, sin, sign, heads_of(in, out, cos));
    return;
  }
  if (!has_host_loops(x) || (type != at::kFloat && type != at::kBFloat16) || x.numel() == 0) {
    out.copy_(rotate_by_tensors(x, cos, sin, sign, kPairs));
    return;
  }
  const Tensor in = x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous();
  if (type == at::kFloat) {
    rotate_on_cpu<float, kPairs>(in, out, cos, sin, sign);
  } else {
    rotate_on_cpu<vector::Bfloat16, kPairs>(in, out, cos, sin, sign);
  }
}

template <RotaryPairs kPairs>
Tensor rotate_by(const Tensor& x, const Tensor& cos, const Tensor& sin, float sign) {
  const Tensor out = at::empty(x.sizes(), x.options());
  rotate_into<kPairs>(out, x, cos, sin, sign);
  return out;
}

template <RotaryPairs kPairs>
struct RotateFunction : torch::autograd::Function<RotateFunction<kPairs>> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      const Tensor& cos,
      const Tensor& sin) {
    context->saved_data["cos"] = cos;
    context->saved_data["sin"] = sin;
    return rotate_by<kPairs>(x, cos, sin, 1);
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    // The rotation is orthogonal, so its gradient is the inverse rotation.
    return {
        rotate_by<kPairs>(
            gradient[0],
            context->saved_data["cos"].toTensor(),
            context->saved_data["sin"].toTensor(),
            -1),
        Tensor(),
        Tensor()};
  }
};

/// Writes the rotated query and key and the unchanged value to one tensor [B, T, H + 2 Hkv, D].
struct SplitRotatedHeads : torch::autograd::Function<SplitRotatedHeads> {
  static torch::autograd::tensor_list forward(
      torch::autograd::AutogradContext* context,
      const Tensor& packed,
      int64_t head_dim,
      int64_t kv_heads,
      const Tensor& cos,
      const Tensor& sin) {
    const Tensor in = packed.unflatten(-1, {-1, head_dim});  // [B, T, H + 2 Hkv, D]
    const int64_t turned = in.size(2) - kv_heads;
    const Tensor out = at::empty(in.sizes(), in.options());
    rotate_into(out.narrow(2, 0, turned), in.narrow(2, 0, turned), cos, sin, 1);
    out.narrow(2, turned, kv_heads).copy_(in.narrow(2, turned, kv_heads));
    context->saved_data["cos"] = cos;
    context->saved_data["sin"] = sin;
    const auto part = [&](int64_t first, int64_t heads) {
      return out.narrow(2, first, heads).transpose(1, 2);  // [B, heads, T, D]
    };
    return {part(0, turned - kv_heads), part(turned - kv_heads, kv_heads), part(turned, kv_heads)};
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const Tensor cos = context->saved_data["cos"].toTensor();
    const Tensor sin = context->saved_data["sin"].toTensor();
    const Tensor query = gradients[0].transpose(1, 2), key = gradients[1].transpose(1, 2);
    const Tensor value = gradients[2].transpose(1, 2);  // [B, T, heads, D] each
    const int64_t heads = query.size(2), kv_heads = key.size(2);
    const Tensor packed = at::empty(
        {query.size(0), query.size(1), heads + 2 * kv_heads, query.size(3)}, query.options());
    rotate_into(packed.narrow(2, 0, heads), query, cos, sin, -1);
    rotate_into(packed.narrow(2, heads, kv_heads), key, cos, sin, -1);
    packed.narrow(2, heads + kv_heads, kv_heads).copy_(value);
    return {packed.flatten(2), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

/// Returns true if the angles match `rows` rows of `length` positions with heads of `size` values.
bool fit(const Tensor& cos, const Tensor& sin, int64_t rows, int64_t length, int64_t size) {
  return cos.sizes() == sin.sizes() &&
         (cos.dim() == 2 || (cos.dim() == 3 && cos.size(0) == rows)) && cos.size(-2) == length &&
         2 * cos.size(-1) <= size;
}

}  // namespace

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, RotaryPairs pairs) {
  if (x.dim() != 4 || !fit(cos, sin, x.size(0), x.size(1), x.size(3))) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "rotary angles {} do not match heads {}",
            fmt::join(cos.sizes(), "x"),
            fmt::join(x.sizes(), "x")));
  }
  const Tensor c = cos.contiguous(), s = sin.contiguous();
  return pairs == RotaryPairs::kHalves ? RotateFunction<RotaryPairs::kHalves>::apply(x, c, s)
                                       : RotateFunction<RotaryPairs::kNeighbours>::apply(x, c, s);
}

std::array<Tensor, 3> split_rotated_heads(
    const Tensor& packed,
    int64_t head_dim,
    int64_t kv_heads,
    const Tensor& cos,
    const Tensor& sin) {
  if (packed.dim() != 3 || packed.size(2) % head_dim != 0 ||
      packed.size(2) <= 2 * kv_heads * head_dim || kv_heads < 1 ||
      !fit(cos, sin, packed.size(0), packed.size(1), head_dim)) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "packed projection {} does not match heads of {} with {} key-value heads and rotary "
            "angles {}",
            fmt::join(packed.sizes(), "x"),
            head_dim,
            kv_heads,
            fmt::join(cos.sizes(), "x")));
  }
  const auto parts =
      SplitRotatedHeads::apply(packed, head_dim, kv_heads, cos.contiguous(), sin.contiguous());
  return {parts[0], parts[1], parts[2]};
}

}  // namespace lockstep::ops
