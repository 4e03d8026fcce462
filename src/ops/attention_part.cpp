#include "ops/attention_part.h"

#include <array>

#include <ATen/ATen.h>

#include "ops/cpu/attention_kernel.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/jobs.h"
#include "ops/cpu/machine.h"
#include "ops/flash_part.h"
#include "ops/split_heads.h"

namespace lockstep::ops {
namespace {

constexpr int64_t kLongest = 2048;  // 64 rows of scores of so many keys are half a megabyte

const kernel::AttentionLoops* loops_for(const Tensor& query) {
#if defined(__x86_64__)
  const MatrixUnit unit = matrix_unit();
  if (has_host_loops(query) && query.scalar_type() == at::kFloat && unit >= MatrixUnit::kAvx512) {
    return &kernel::kAttentionFloat;
  }
  if (has_host_loops(query) && query.scalar_type() == at::kBFloat16 &&
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
    const Tensor& query, const Tensor& key, double scale, PartSees sees, int64_t window) {
  return {
      .heads = query.size(1),
      .kv_heads = key.size(1),
      .length = query.size(2),
      .keys = key.size(2),
      .size = query.size(3),
      .sees_all = sees == PartSees::kAll,
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

}  // namespace

bool has_attention_loops(const Tensor& query, const Tensor& key) {
  return loops_for(query) != nullptr && query.scalar_type() == key.scalar_type() &&
         key.size(2) <= kLongest;
}

bool has_attention_part(const Tensor& query, const Tensor& key) {
  return has_attention_loops(query, key) || has_flash_part(query, key);
}

AttentionPart attention_part(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees,
    int64_t window) {
  if (!has_attention_loops(query, key)) {
    return flash_part(query, key, value, scale, sees);
  }
  const Tensor q = dense_heads(query), k = dense_heads(key), v = dense_heads(value);
  AttentionPart part{
      empty_by_token(q),
      at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat))};
  const kernel::AttentionLoops& loops = *loops_for(q);
  const kernel::AttentionSizes sizes = sizes_of(q, k, scale, sees, window);
  const kernel::AttentionForward arrays = forward_of(q, k, v, part.out, part.log_sum);
  over_jobs(
      q.size(0) * k.size(1),
      loops.scratch_bytes(sizes),
      [&](int64_t first, int64_t last, void* scratch) {
        loops.forward(sizes, arrays, first, last, scratch);
      });
  return part;
}

AttentionPartGradients attention_part_backward(
    const Tensor& out_gradient,
    const AttentionPart& whole,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees,
    int64_t window) {
  if (!has_attention_loops(query, key)) {
    return flash_part_backward(out_gradient, whole, query, key, value, scale, sees);
  }
  const Tensor q = dense_heads(query), k = dense_heads(key), v = dense_heads(value);
  const Tensor dout = dense_heads(out_gradient), out = dense_heads(whole.out);
  const Tensor log_sum = whole.log_sum.contiguous();
  const auto [dq, dk, dv] =
      are_packed_heads(q, k, v)
          ? empty_packed_heads(q)
          : std::array<Tensor, 3>{empty_by_token(q), empty_by_token(k), empty_by_token(v)};
  const kernel::AttentionLoops& loops = *loops_for(q);
  const kernel::AttentionSizes sizes = sizes_of(q, k, scale, sees, window);
  const kernel::AttentionBackward arrays{
      .forward = forward_of(q, k, v, out, log_sum),
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
  return {dq, dk, dv};
}

}  // namespace lockstep::ops
