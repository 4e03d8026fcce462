// Partial attention by ATen's flash attention kernels.
#include "ops/flash_part.h"

#include <tuple>

#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>

#include "ops/cpu/host_loops.h"

namespace lockstep::ops {
namespace {

/// Repeats each key-value head for its query heads, because some of ATen's kernels do not support
/// grouped queries.
Tensor for_each_query_head(const Tensor& x, int64_t heads) {
  return x.size(1) == heads ? x : x.repeat_interleave(heads / x.size(1), 1);
}

/// Sums gradients over the query heads of each key-value head: [B, H, S, D] -> [B, Hkv, S, D].
Tensor summed_by_head(const Tensor& x, int64_t kv_heads) {
  const int64_t groups = x.size(1) / kv_heads;
  return groups == 1 ? x : x.view({x.size(0), kv_heads, groups, x.size(2), x.size(3)}).sum(2);
}

}  // namespace

bool has_flash_part(const Tensor& query, const Tensor& key) {
  const auto type = query.scalar_type();
  if (type != key.scalar_type() || query.numel() == 0 || key.numel() == 0) {
    return false;
  }
  if (!query.is_cuda()) {
    return query.is_cpu() && !has_host_loops(query) &&
           (type == at::kFloat || type == at::kBFloat16);
  }
  if ((type != at::kBFloat16 && type != at::kHalf) || query.size(3) % 8 != 0 ||
      query.size(3) > 256) {
    return false;
  }
  // A GPU for which cuDNN is chosen also supports flash attention.
  const auto chosen = static_cast<at::SDPBackend>(at::_fused_sdp_choice(query, query, query));
  return chosen == at::SDPBackend::flash_attention || chosen == at::SDPBackend::cudnn_attention;
}

AttentionPart flash_part(
    const Tensor& query, const Tensor& key, const Tensor& value, double scale, PartSees sees) {
  const bool causal = sees == PartSees::kEarlier;
  const Tensor k = for_each_query_head(key, query.size(1)),
               v = for_each_query_head(value, query.size(1));
  if (query.is_cpu()) {
    auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        query, k, v, /*dropout_p=*/0.0, causal, /*attn_mask=*/std::nullopt, scale);
    return {out, log_sum};
  }
  auto result = at::_scaled_dot_product_flash_attention(
      query, k, v, /*dropout_p=*/0.0, causal, /*return_debug_mask=*/false, scale);
  return {std::get<0>(result), std::get<1>(result)};
}

AttentionPartGradients flash_part_backward(
    const Tensor& out_gradient,
    const AttentionPart& whole,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double scale,
    PartSees sees) {
  const bool causal = sees == PartSees::kEarlier;
  const Tensor k = for_each_query_head(key, query.size(1)),
               v = for_each_query_head(value, query.size(1));
  const Tensor log_sum = whole.log_sum.contiguous();
  std::tuple<Tensor, Tensor, Tensor> made;
  if (query.is_cpu()) {
    made = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        out_gradient,
        query,
        k,
        v,
        whole.out,
        log_sum,
        /*dropout_p=*/0.0,
        causal,
        /*attn_mask=*/std::nullopt,
        scale);
  } else {
    const Tensor unread = at::zeros(
        {2},
        query.options().dtype(at::kLong));  // seed and offset of dropout, which is not used
    made = at::_scaled_dot_product_flash_attention_backward(
        out_gradient,
        query,
        k,
        v,
        whole.out,
        log_sum,
        /*cum_seq_q=*/{},
        /*cum_seq_k=*/{},
        query.size(2),
        key.size(2),
        /*dropout_p=*/0.0,
        causal,
        unread,
        unread,
        scale);
  }
  const auto& [dq, dk, dv] = made;
  return {dq, summed_by_head(dk, key.size(1)), summed_by_head(dv, key.size(1))};
}

}  // namespace lockstep::ops
