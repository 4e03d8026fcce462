// Token-by-token generation with a key-value cache.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/language_model.h"

namespace lockstep::nn {

struct GenerateOptions {
  int64_t max_new_tokens = 20;
  int64_t min_new_tokens = 0;  // number of new tokens for which stop tokens are masked
  double temperature = 0;      // 0: always choose the most likely token
  int64_t top_k = 0;           // sample among the k most likely tokens; 0: among all
  double top_p = 1;   // nucleus sampling: smallest set of tokens with total probability p; 1: all
                      // tokens
  uint64_t seed = 0;  // the token sampled at a position depends only on (seed, position)
  /// Tokens that stop the generation. The stop token is included in the returned ids.
  std::vector<int64_t> stop_tokens = {};
};

enum class StopReason { kLength, kStopToken, kCallback };

struct Generated {
  std::vector<int64_t> ids;  // the generated tokens
  StopReason reason = StopReason::kLength;
};

/// Generates a continuation of `prompt`, which for an encoder-decoder is the source. Calls
/// `on_token` with each new token before the next one is computed; generation stops if it returns
/// false. Must be called on every rank that holds a shard of the model. Before any computation,
/// throws Error (kConfig) if the prompt is empty, an id is outside the vocabulary, an option is out
/// of range, or prompt and new tokens exceed the model's position limit.
Generated generate(
    const LanguageModel& model,
    const std::vector<int64_t>& prompt,
    const GenerateOptions& options,
    const std::function<bool(int64_t id)>& on_token = nullptr);

/// Continues several prompts greedily. The ids are the same as those of generate() for each prompt,
/// up to rounding. Each pass processes one token of every unfinished row, from its prompt or its
/// generated tokens, so that rows need no padding. Most efficient for prompts of similar length.
/// `max_new_tokens` has one element per row. Only for decoders; otherwise like generate().
std::vector<Generated> generate_rows(
    const LanguageModel& model,
    const std::vector<std::vector<int64_t>>& prompts,
    const std::vector<int64_t>& max_new_tokens,
    const std::vector<int64_t>& stop_tokens);

/// Samples one token from `logits` [V], where `draw` is uniform in [0, 1). Applies temperature,
/// then top-k, then top-p, in the same order as Hugging Face.
int64_t choose_token(const Tensor& logits, const GenerateOptions& options, double draw);

}  // namespace lockstep::nn
