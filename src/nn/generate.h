// Text from a model, a token at a time, with a key-value cache.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/language_model.h"

namespace lockstep::nn {

struct GenerateOptions {
  int64_t max_new_tokens = 20;
  int64_t min_new_tokens = 0;  // until there are so many, no stop token is chosen
  double temperature = 0;      // 0: the likeliest token
  int64_t top_k = 0;           // 0: all; else sample among the k likeliest
  double top_p = 1;            // sample among the fewest tokens whose probabilities reach p; 1: all
  uint64_t seed = 0;           // the draw of a position depends on (seed, position) alone
  /// Generation ends after one of these; it is among the ids that come back.
  std::vector<int64_t> stop_tokens = {};
};

enum class StopReason { kLength, kStopToken, kCallback };

struct Generated {
  std::vector<int64_t> ids;  // the new tokens
  StopReason reason = StopReason::kLength;
};

/// Continues `prompt`; an encoder-decoder reads it as its source and answers it. `on_token` is
/// called with each new token, before the next is computed; false ends the generation. Blocks; call
/// it on every rank that holds a part of the model. Throws Error (kConfig): an empty prompt, an id
/// that the vocabulary does not have, options out of bounds, or prompt and new tokens past the
/// model's position limit (checked before anything is computed).
Generated generate(
    const LanguageModel& model,
    const std::vector<int64_t>& prompt,
    const GenerateOptions& options,
    const std::function<bool(int64_t id)>& on_token = nullptr);

/// Continues each prompt greedily: the same ids as generate() gives of each alone, but for
/// rounding. A pass reads a token of every row that goes on, of its prompt or of what it was given,
/// so rows are not padded; those of like length are best together. `max_new_tokens` is of each row.
/// Of decoders alone; as generate().
std::vector<Generated> generate_rows(
    const LanguageModel& model,
    const std::vector<std::vector<int64_t>>& prompts,
    const std::vector<int64_t>& max_new_tokens,
    const std::vector<int64_t>& stop_tokens);

/// One draw from `logits` [V] by the options; `draw` is uniform in [0, 1). The order is Hugging
/// Face's: temperature, then top-k, then top-p.
int64_t choose_token(const Tensor& logits, const GenerateOptions& options, double draw);

}  // namespace lockstep::nn
