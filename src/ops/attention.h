// Attention, causal or bidirectional, with grouped queries, sliding windows, packed documents, and
// dropout without a stored mask.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Document boundaries in rows [B, T], which are concatenated to B T tokens.
struct DocumentOffsets {
  Tensor offsets;  // [documents + 1] int32: start of each document, then B T; undefined: unknown
  int64_t longest = 0;  // number of tokens of the longest document
};

struct AttentionOptions {
  bool causal = true;  // false: bidirectional attention to all keys, or to all keys of the query's
                       // document; a window is not supported
  double scale = 1;    // factor of the scores
  double cap = 0;  // scores become cap * tanh(score / cap) before the mask (Gemma 2, 2024, section
                   // 2); 0: no cap
  int64_t window = 0;   // query i attends to key j if i - window < j <= i; 0: to every j <= i
  bool upcast = false;  // compute scores in float32 for every input type
  Tensor sinks =
      {};  // [H]: attention sinks. A sink is an additional unscaled score per query head that takes
           // part in the softmax but has no value (gpt-oss, 2025; after Xiao et al., "Efficient
           // Streaming Language Models with Attention Sinks", 2023). Undefined: no sinks
  double dropout = 0;        // dropout rate of the attention probabilities
  Tensor dropout_keys = {};  // random keys per row or per token, required if dropout > 0
                             // (ops/dropout.h); the element index is (head, query, key)
  int64_t first_head = 0,
          total_heads = 0;  // for dropout, if query has only some of the heads; total_heads 0:
                            // query has all heads
  /// [B, T] int64 on the query's device: start of each token's document in its row, which is the
  /// first key that the token's query attends to. Requires equal numbers of queries and keys, and
  /// ascending starts in each row. Undefined: each row is one document.
  Tensor document_starts = {};
  /// The same documents as offsets on the query's device. If set, flash attention on a GPU
  /// processes each document as a separate sequence instead of masking all pairs.
  DocumentOffsets document_offsets = {};
  /// [B, T] int64 on the query's device, used with document_starts for documents with common
  /// prefixes, which are stored as a tree with each token before its continuations. Key j of a
  /// document is visible only to its queries [j, seen_until[j]). Requires causal attention without
  /// window, cap, sinks, dropout and upcast. The backward pass uses ATen. Undefined: key j is
  /// visible to all later queries of the document.
  Tensor seen_until = {};
};

/// Returns x as an optional argument of an autograd function; nullopt if x is undefined.
inline std::optional<Tensor> if_defined(const Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

/// Returns softmax(scale * query key^T + mask) value (Vaswani et al., 2017, equation 1). query is
/// [B, H, T, D]; key and value are [B, Hkv, S, D] with T <= S; H is a multiple of Hkv. Query t has
/// position S - T + t. The result is [B, H, T, D]. Uses custom CPU loops if the processor has
/// AVX-512 (bfloat16: also AVX512-BF16 or AMX) and the whole sequence is given; otherwise uses one
/// of the two functions below.
Tensor attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

/// Attention by ATen's fused kernel. Does not support dropout, upcast, cap or sinks.
Tensor fused_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

/// Attention that computes the scores of one tile of queries at a time, in the forward pass and
/// again in the backward pass. Stores no probabilities and skips keys that are invisible to a tile.
/// Supports all options.
Tensor tiled_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

/// Returns a bool mask of the keys visible to each query: [T, S], or [B, 1, T, S] with
/// `document_starts` [B, T]. `seen_until` requires `document_starts`.
Tensor visible_keys(
    int64_t queries,
    int64_t keys,
    int64_t window,
    at::Device device,
    const Tensor& document_starts = {},
    const Tensor& seen_until = {});

/// Returns the offsets of documents from the start of each token's document, int64 [B, T] on the
/// CPU.
DocumentOffsets offsets_of_documents(const Tensor& starts);

/// Returns the end of each token's document from its start, int64 [B, T].
Tensor ends_of_documents(const Tensor& starts);

}  // namespace lockstep::ops
