// ATen's flash attention for packed documents and sliding windows on GPUs.
#include "ops/flash_attention.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/SDPBackend.h>

namespace lockstep::ops {

bool takes_groups(int64_t backend) {
  return backend == static_cast<int64_t>(at::SDPBackend::flash_attention) ||
         backend == static_cast<int64_t>(at::SDPBackend::cudnn_attention);
}

DocumentOffsets offsets_of_documents(const Tensor& starts) {
  const Tensor rows = starts.contiguous();
  const auto* start = rows.const_data_ptr<int64_t>();
  const int64_t length = rows.size(1);
  std::vector<int> offsets;
  DocumentOffsets found;
  for (int64_t i = 0; i <= rows.numel(); ++i) {
    const bool ends = i == rows.numel() || i % length == 0 || start[i] != start[i - 1];
    if (!ends) {
      continue;
    }
    if (!offsets.empty()) {
      found.longest = std::max(found.longest, i - offsets.back());
    }
    offsets.push_back(static_cast<int>(i));
  }
  found.offsets = at::tensor(offsets, at::kInt);
  return found;
}

bool flash_hides_by_itself(
    const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  const auto type = query.scalar_type();
  const bool fits = options.document_starts.defined()
                        ? options.document_offsets.offsets.defined() &&
                              !options.seen_until.defined() && query.size(2) == key.size(2)
                        : options.causal;
  if (!query.is_cuda() || (type != at::kBFloat16 && type != at::kHalf) || query.size(3) % 8 != 0 ||
      key.scalar_type() != type || !fits) {
    return false;
  }
  // A GPU for which cuDNN is chosen also supports flash attention.
  return takes_groups(
      at::_fused_sdp_choice(query, query, query, /*attn_mask=*/{}, /*dropout_p=*/0.0, true));
}

namespace {

/// Attention over documents, each of which is processed as a separate sequence.
Tensor attention_of_documents(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  const auto& [offsets, longest] = options.document_offsets;
  const c10::SymInt before(options.window > 0 ? options.window - 1 : -1);  // -1: unlimited
  const auto in_a_row = [](const Tensor& x) { return x.transpose(1, 2).flatten(0, 1); };
  const auto made = at::_flash_attention_forward_symint(
      in_a_row(query),  // [B T, H, D]
      in_a_row(key),
      in_a_row(value),
      offsets,
      offsets,
      c10::SymInt(longest),
      c10::SymInt(longest),
      /*dropout_p=*/0.0,
      options.causal,
      /*return_debug_mask=*/false,
      std::optional<double>(options.scale),
      /*window_size_left=*/options.causal ? before : c10::SymInt(-1),
      /*window_size_right=*/c10::SymInt(options.causal ? 0 : -1));
  return std::get<0>(made).unflatten(0, {query.size(0), query.size(2)}).transpose(1, 2);
}

}  // namespace

Tensor flash_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options) {
  if (options.document_starts.defined()) {
    return attention_of_documents(query, key, value, options);
  }
  const c10::SymInt before(options.window > 0 ? options.window - 1 : -1);  // -1: unlimited
  const auto made = at::_flash_attention_forward_symint(
      query.transpose(1, 2),
      key.transpose(1, 2),
      value.transpose(1, 2),
      /*cum_seq_q=*/{},
      /*cum_seq_k=*/{},
      query.sym_size(2),
      key.sym_size(2),
      /*dropout_p=*/0.0,
      /*is_causal=*/true,
      /*return_debug_mask=*/false,
      std::optional<double>(options.scale),
      /*window_size_left=*/before,
      /*window_size_right=*/c10::SymInt(0));
  return std::get<0>(made).transpose(1, 2);
}

}  // namespace lockstep::ops
