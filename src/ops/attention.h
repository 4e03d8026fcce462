// Attention, causal or bidirectional, with grouped queries, sliding windows, packed documents, and
// dropout without a stored mask.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Boundaries of documents among all tokens of rows [B, T], with the rows concatenated.
struct DocumentOffsets {
  Tensor offsets;  // [documents + 1] int32: start of each document, then B T. Undefined: unknown
  int64_t longest = 0;  // tokens of the longest document
};

struct AttentionOptions {
  bool causal = true;  // false: bidirectional; a query sees every key, or every key of its
                       // document; there is no window
  double scale = 1;    // factor of the scores
  double cap = 0;  // scores become cap * tanh(score / cap) before the mask (Gemma 2, 2024, section
                   // 2); 0: no cap
  int64_t window = 0;   // query i sees key j if i - window < j <= i; 0: every j <= i
  bool upcast = false;  // compute scores in float32 for every type
  Tensor sinks =
      {};  // [H]: attention sinks, an additional unscaled score of each query head that takes part
           // in the softmax and has no value (gpt-oss, 2025; after Xiao et al., "Efficient
           // Streaming Language Models with Attention Sinks", 2023). Undefined: none
  double dropout = 0;        // dropout rate of the probabilities
  Tensor dropout_keys = {};  // random keys of the rows or of their tokens, required if dropout > 0
                             // (ops/dropout.h). The element is (head, query, key)
  int64_t first_head = 0,
          total_heads =
              0;  // for dropout if query has only some of the heads; total_heads 0: it has all
  /// [B, T] int64 on the query's device: start of each token's document in its row, which is the
  /// first key that its query sees. Requires as many queries as keys; the starts ascend in a row.
  /// Undefined: each row is one document.
  Tensor document_starts = {};
  /// The same documents as offsets on the query's device. If set, flash attention on a GPU treats
  /// each document as a sequence of its own instead of masking all pairs.
  DocumentOffsets document_offsets = {};
  /// [B, T] int64 on the query's device, with document_starts: for documents with common prefixes,
  /// stored as a tree with each token before its continuations. Only the queries [j, seen_until[j])
  /// of the document see its key j. Causal, without window, cap, sinks, dropout and upcast; the
  /// backward pass uses ATen. Undefined: all later queries of the document see key j.
  Tensor seen_until = {};
};

/// Returns x as an optional argument for an autograd function; nullopt if x is undefined.
inline std::optional<Tensor> if_defined(const Tensor& x) {
  return x.defined() ? std::optional(x) : std::nullopt;
}

/// softmax(scale * query key^T + mask) value (Vaswani et al., 2017, equation 1). query is [B, H, T,
/// D]; key and value are [B, Hkv, S, D] with T <= S and H a multiple of Hkv. Query t is at position
/// S - T + t. Returns [B, H, T, D]. Uses custom loops if the processor has AVX-512 (bfloat16: also
/// AVX512-BF16 or AMX) and the whole sequence is given; otherwise one of the two functions below.
Tensor attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

/// ATen's fused kernel. Does not support dropout, upcast, cap or sinks.
Tensor fused_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

/// Computes the scores one tile of queries at a time in the forward pass and again in the backward
/// pass. Stores no probabilities and skips keys that a tile does not see. Supports every option.
Tensor tiled_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& options);

/// Returns a mask of the keys that each query sees, [T, S] bool; [B, 1, T, S] with
/// `document_starts` [B, T]. `seen_until` requires `document_starts`.
Tensor visible_keys(
    int64_t queries,
    int64_t keys,
    int64_t window,
    at::Device device,
    const Tensor& document_starts = {},
    const Tensor& seen_until = {});

/// Returns the offsets of documents, given the start of each token's document, int64 [B, T] on the
/// CPU.
DocumentOffsets offsets_of_documents(const Tensor& starts);

/// Returns the end of each token's document, [B, T] int64, given its start.
Tensor ends_of_documents(const Tensor& starts);

}  // namespace lockstep::ops
