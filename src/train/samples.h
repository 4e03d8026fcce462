// Generates text from the prompts of monitor.samples at each evaluation.
#pragma once

#include <string>
#include <vector>

#include "model/model_config.h"
#include "text/tokenizer.h"
#include "train/job.h"

namespace lockstep::train {

/// Returns the token ids of a prompt for generation. The source of an encoder-decoder ends with the
/// end-of-text token, as in training.
std::vector<int64_t> encode_prompt(
    const text::Tokenizer& tokenizer, const model::ModelConfig& config, const std::string& text);

/// Throws Error (config) if monitor.samples cannot be generated: the model does not generate text,
/// the run has no evaluations, or a prompt has no tokens or leaves no position for new ones.
void check_samples(const Job& job);

/// Continues each prompt greedily with the current model, under the run's own plan. Each new token
/// of all prompts takes one forward pass over the whole sequences, so there is no cache and no
/// weights are moved. Rank 0 passes the text to its monitor. Does nothing without prompts. Every
/// rank must call.
void write_samples(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
