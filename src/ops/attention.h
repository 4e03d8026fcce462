// Attention, causal or not, with grouped queries, sliding windows, rows of several documents, and
// dropout whose mask is never kept.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Where documents lie among all tokens of rows [B, T], one row behind the other.
struct DocumentOffsets {
  Tensor offsets;       // [documents + 1] int32: where each begins, and B T. Undefined: nobody says
  int64_t longest = 0;  // tokens of the longest
};

struct AttentionOptions {
  bool causal = true;        // else a query sees every key, or those of its document, before and
                             // behind it; there is no window then
  double scale = 1;          // of the scores
  double cap = 0;            // they become cap * tanh(score / cap) before the mask (Gemma 2, 2024,
                             // section 2); 0: they stay
  int64_t window = 0;        // key j is seen by query i where i - window < j <= i; 0: every j <= i
  bool upcast = false;       // scores in float32, whatever the type
  Tensor sinks = {};         // [H]: a score of each query head, beside those of its keys and not
                             // scaled, that takes its share of the softmax and gives nothing
                             // (gpt-oss, 2025; after Xiao et al., "Efficient Streaming Language
                             // Models with Attention Sinks", 2023). Undefined: none
  double dropout = 0;        // of the probabilities
  Tensor dropout_keys = {};  // where dropout > 0: of the rows or of their tokens, see
                             // ops/dropout.h. The element is (head, query, key)
  int64_t first_head = 0,
          total_heads = 0;  // for dropout, where query holds a part of the heads; 0 heads: all
  /// [B, T] int64, on the query's device: where in its row the document of each token begins, which
  /// is the first key that its query sees; as many queries as keys. They ascend in a row.
  /// Undefined: a row is one document.
  Tensor document_starts = {};
  /// Of the same documents, on the query's device: where these are given, flash attention on a GPU
  /// takes each document as a sequence of its own, instead of a mask of all pairs.
  DocumentOffsets document_offsets = {};
  /// [B, T] int64, likewise, with document_starts: of texts that begin alike and lie as a tree,
  /// each token before those that follow it: key j of a document is seen by its queries [j,
  /// seen_until[j]) alone. Causal, without window, cap, sinks, dropout and upcast; a gradient is
  /// ATen's. Undefined: by all of them behind it.
  Tensor seen_until = {};
};

/// What an autograd function may be given for a tensor that is not there.
inline std::optional<Tensor> if_defined(const Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

/// softmax(scale * query key^T + mask) value (Vaswani et al., 2017, equation 1). query [B, H, T,
/// D], key and value [B, Hkv, S, D] with T <= S and H a multiple of Hkv; query t stands at position
/// S - T + t. Returns [B, H, T, D]. Chooses one of the two
/// below, or where the processor has AVX-512 (bfloat16: and AVX512-BF16 or AMX) and the whole
/// sequence is given, loops of its own.
Tensor attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

/// ATen's fused kernel. Takes neither dropout nor upcast nor a cap nor sinks.
Tensor fused_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

/// The scores of a tile of queries at a time, in the forward and again in the backward pass: no
/// probabilities are kept, and keys that a tile does not see are left out. Takes every option.
Tensor tiled_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

/// [T, S] bool: which keys each query sees; [B, 1, T, S] with `document_starts` [B, T], with which
/// `seen_until` may be.
Tensor visible_keys(
    int64_t queries,
    int64_t keys,
    int64_t window,
    at::Device device,
    const Tensor& document_starts = {},
    const Tensor& seen_until = {});

/// From where in its row the document of each token begins, int64 [B, T] on the CPU.
DocumentOffsets offsets_of_documents(const Tensor& starts);

/// [B, T] int64: where the document of each token ends, from where each begins.
Tensor ends_of_documents(const Tensor& starts);

}  // namespace lockstep::ops
