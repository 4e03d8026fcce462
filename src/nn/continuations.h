// What may follow prompts: each prompt is read once, and what follows it sees its keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/key_value_cache.h"
#include "nn/language_model.h"

namespace lockstep::nn {

using TokenIds = std::vector<int64_t>;

/// Rows of ids [N, T] int64, shorter ones filled at their ends with 0; at least 2 long.
Tensor table_of(std::span<const TokenIds> rows);
/// The ids, and as targets the tokens of each row from `begins[row]` on, which is at least 1.
ForwardInputs predicted_from(std::span<const TokenIds> rows, std::span<const size_t> begins);

/// Of decoders whose rotary positions do not depend on a sequence's length. What all prompts have
/// as many tokens of is read at once, but for the last one; the rest, which is short where prompts
/// are of like length, is read with each continuation. Without gradients and dropout.
class Continuations {
 public:
  /// Reads prompts, none of them empty; the model must outlive this. Every rank that holds a part
  /// of the model must call, and likewise below, with the same.
  Continuations(const LanguageModel& model, std::vector<TokenIds> prompts, c10::Device device);

  /// The log-likelihood of each text behind each prompt: float64 [B, K] on the CPU. `rows_at_once`
  /// bounds the rows of a pass, of which there are at least as many as prompts.
  Tensor log_likelihoods(std::span<const TokenIds> texts, int64_t rows_at_once) const;
  /// Of each of the prompts `rows`, `texts[i]` behind it: the logits of the token after that,
  /// float32 [N, V] on the CPU.
  Tensor next_logits(std::span<const int64_t> rows, std::span<const TokenIds> texts) const;

 private:
  /// The prompt's tokens that are not read yet, and `text`.
  TokenIds unread(int64_t row, const TokenIds& text) const;
  /// Of the prompts `rows`; nothing of it where nothing was read.
  KeyValueCache cache_of(const std::vector<int64_t>& rows) const;

  const LanguageModel& model_;
  const std::vector<TokenIds> prompts_;
  const c10::Device device_;
  size_t read_ = 0;  // tokens of each prompt
  KeyValueCache cache_;
};

}  // namespace lockstep::nn
