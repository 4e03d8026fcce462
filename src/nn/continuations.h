// Scores continuations of prompts. Each prompt is processed once, and its keys and values are
// reused for every continuation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/key_value_cache.h"
#include "nn/language_model.h"

namespace lockstep::nn {

using TokenIds = std::vector<int64_t>;

/// Returns rows of ids as one tensor [N, T] int64, right-padded with 0. T is at least 2.
Tensor table_of(std::span<const TokenIds> rows);
/// Returns inputs whose targets are the tokens of each row from `begins[row]` (at least 1) to its
/// end.
ForwardInputs predicted_from(std::span<const TokenIds> rows, std::span<const size_t> begins);

/// Scores continuations with decoders whose rotary positions do not depend on the sequence length.
/// The constructor processes the first min(prompt length) - 1 tokens of all prompts in one pass.
/// Each continuation then processes the rest of its prompt, which is short if the prompts have
/// similar lengths. Runs without gradients and dropout.
class Continuations {
 public:
  /// Processes the prompts, which must not be empty. The model must outlive this object. This
  /// constructor and the methods below must be called on every rank that holds a shard of the
  /// model, with the same arguments.
  Continuations(const LanguageModel& model, std::vector<TokenIds> prompts, c10::Device device);

  /// Returns the log-likelihood of each continuation after each prompt: float64 [B, K] on the CPU.
  /// `rows_at_once` limits the number of rows per forward pass; a pass has at least one row per
  /// prompt.
  Tensor log_likelihoods(std::span<const TokenIds> texts, int64_t rows_at_once) const;
  /// Returns the next-token logits after `texts[i]` is appended to prompt `rows[i]`: float32 [N, V]
  /// on the CPU.
  Tensor next_logits(std::span<const int64_t> rows, std::span<const TokenIds> texts) const;

 private:
  /// Returns the tokens of the prompt that are not in the cache, followed by `text`.
  TokenIds unread(int64_t row, const TokenIds& text) const;
  /// Returns the cache of the prompts `rows`; empty if no token was cached.
  KeyValueCache cache_of(const std::vector<int64_t>& rows) const;

  const LanguageModel& model_;
  const std::vector<TokenIds> prompts_;
  const c10::Device device_;
  size_t read_ = 0;  // number of cached tokens of each prompt
  KeyValueCache cache_;
};

}  // namespace lockstep::nn
