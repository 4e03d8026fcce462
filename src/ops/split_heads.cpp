// Splits packed query-key-value projections into heads.
#include "ops/split_heads.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::ops {
namespace {

/// [B, T, 3, H, D] -> 3 of [B, H, T, D].
std::array<Tensor, 3> parts_of(const Tensor& packed) {
  const auto part = [&](int64_t i) { return packed.select(2, i).transpose(1, 2); };
  return {part(0), part(1), part(2)};
}

struct SplitHeads : torch::autograd::Function<SplitHeads> {
  static torch::autograd::tensor_list forward(
      torch::autograd::AutogradContext* /*context*/, const Tensor& packed, int64_t head_dim) {
    const auto parts = parts_of(packed.unflatten(-1, {3, -1, head_dim}));
    return {parts[0], parts[1], parts[2]};
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* /*context*/, torch::autograd::tensor_list gradients) {
    const Tensor &q = gradients[0], &k = gradients[1], &v = gradients[2];
    const int64_t batch = q.size(0), heads = q.size(1), length = q.size(2), size = q.size(3);
    const int64_t width = 3 * heads * size;
    if (are_packed_heads(q, k, v)) {
      return {
          q.as_strided({batch, length, width}, {length * width, width, 1}, q.storage_offset()),
          Tensor()};
    }
    Tensor packed = at::empty({batch, length, 3, heads, size}, q.options());
    const auto parts = parts_of(packed);
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].copy_(gradients[i]);
    }
    return {packed.view({batch, length, width}), Tensor()};
  }
};

}  // namespace

std::array<Tensor, 3> split_heads(const Tensor& packed, int64_t head_dim) {
  if (packed.dim() != 3 || packed.size(2) % (3 * head_dim) != 0) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "packed projection {} is not divisible into heads of {}",
            fmt::join(packed.sizes(), "x"),
            head_dim));
  }
  const auto parts = SplitHeads::apply(packed, head_dim);
  return {parts[0], parts[1], parts[2]};
}

std::array<Tensor, 3> empty_packed_heads(const Tensor& like) {
  return parts_of(
      at::empty({like.size(0), like.size(2), 3, like.size(1), like.size(3)}, like.options()));
}

bool are_packed_heads(const Tensor& query, const Tensor& key, const Tensor& value) {
  const int64_t heads = query.size(1), size = query.size(3), row = 3 * heads * size;
  const std::vector<int64_t> strides{query.size(2) * row, size, row, 1};
  const auto follows = [&](const Tensor& x, int64_t place) {
    return x.sizes() == query.sizes() && x.strides() == at::IntArrayRef(strides) &&
           x.scalar_type() == query.scalar_type() && x.storage().is_alias_of(query.storage()) &&
           x.storage_offset() == query.storage_offset() + place * heads * size;
  };
  return follows(query, 0) && follows(key, 1) && follows(value, 2);
}

}  // namespace lockstep::ops
