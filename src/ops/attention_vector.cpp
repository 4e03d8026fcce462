#include "ops/attention_vector.h"

#include <algorithm>
#include <array>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/attention_kernel.h"
#include "ops/jobs.h"
#include "ops/machine.h"
#include "ops/split_heads.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kLongest = 2048;  // 64 rows of scores of so many keys are half a megabyte

const kernel::AttentionLoops* loops_for(const Tensor& query) {
#if defined(__x86_64__)
  const MatrixUnit unit = matrix_unit();
  if (query.device().is_cpu() && query.scalar_type() == at::kFloat && unit >= MatrixUnit::kAvx512) {
    return &kernel::kAttentionFloat;
  }
  if (query.device().is_cpu() && query.scalar_type() == at::kBFloat16 &&
      unit >= MatrixUnit::kBfloat16) {
    return unit >= MatrixUnit::kAmx ? &kernel::kAttentionAmx : &kernel::kAttentionBfloat16;
  }
#else
  (void)query;
#endif
  return nullptr;
}

/// [B, H, T, D] whose last dim is dense.
Tensor dense_heads(const Tensor& x) {
  return x.stride(3) == 1 ? x : x.contiguous();
}

kernel::HeadStrides strides_of(const Tensor& x) {
  return {x.stride(0), x.stride(1), x.stride(2)};
}

/// Like x, [B, H, T, D], laid out as [B, T, H, D].
Tensor empty_by_token(const Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

kernel::AttentionSizes sizes_of(
    const Tensor& query, const Tensor& key, int64_t window, double scale) {
  return {
      .heads = query.size(1),
      .kv_heads = key.size(1),
      .length = query.size(2),
      .size = query.size(3),
      .window = window,
      .scale = static_cast<float>(scale)};
}

kernel::AttentionForward forward_of(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor& out,
    const Tensor& log_sum) {
  return {
      .query = query.const_data_ptr(),
      .key = key.const_data_ptr(),
      .value = value.const_data_ptr(),
      .query_at = strides_of(query),
      .key_at = strides_of(key),
      .value_at = strides_of(value),
      .out_at = strides_of(out),
      .out = out.data_ptr(),
      .log_sum = log_sum.data_ptr<float>()};
}

struct VectorAttention : torch::autograd::Function<VectorAttention> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      double scale,
      int64_t window) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const Tensor q = dense_heads(query), k = dense_heads(key), v = dense_heads(value);
    const Tensor out = empty_by_token(q);
    const Tensor log_sum =
        at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    const kernel::AttentionLoops& loops = *loops_for(q);
    const kernel::AttentionSizes sizes = sizes_of(q, k, window, scale);
    const kernel::AttentionForward arrays = forward_of(q, k, v, out, log_sum);
    over_jobs(
        q.size(0) * k.size(1),
        loops.scratch_bytes(sizes),
        [&](int64_t first, int64_t last, void* scratch) {
          loops.forward(sizes, arrays, first, last, scratch);
        });
    context->save_for_backward({q, k, v, out, log_sum});
    context->saved_data["scale"] = scale;
    context->saved_data["window"] = window;
    return out;
  }

  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradients) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const Tensor dout = dense_heads(gradients[0]);
    const auto [dq, dk, dv] =
        are_packed_heads(q, k, v)
            ? empty_packed_heads(q)
            : std::array<Tensor, 3>{empty_by_token(q), empty_by_token(k), empty_by_token(v)};
    const kernel::AttentionLoops& loops = *loops_for(q);
    const kernel::AttentionSizes sizes = sizes_of(
        q, k, context->saved_data["window"].toInt(), context->saved_data["scale"].toDouble());
    const kernel::AttentionBackward arrays{
        .forward = forward_of(q, k, v, saved[3], saved[4]),
        .out_gradient = dout.const_data_ptr(),
        .out_gradient_at = strides_of(dout),
        .query_gradient = dq.data_ptr(),
        .key_gradient = dk.data_ptr(),
        .value_gradient = dv.data_ptr(),
        .query_gradient_at = strides_of(dq),
        .key_gradient_at = strides_of(dk),
        .value_gradient_at = strides_of(dv)};
    over_jobs(
        q.size(0) * k.size(1),
        loops.scratch_bytes(sizes),
        [&](int64_t first, int64_t last, void* scratch) {
          loops.backward(sizes, arrays, first, last, scratch);
        });
    return {dq, dk, dv, Tensor(), Tensor()};
  }
};

}  // namespace

bool has_vector_attention(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  return loops_for(query) != nullptr && options.dropout == 0 && query.numel() > 0 &&
         query.size(2) > 1 && query.size(2) == key.size(2) && key.size(2) <= kLongest &&
         query.scalar_type() == key.scalar_type();
}

Tensor vector_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  return VectorAttention::apply(query, key, value, options.scale, options.window);
}

}  // namespace lockstep::ops
