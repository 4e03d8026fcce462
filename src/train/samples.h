// Generates text from the prompts of monitor.samples at every evaluation.
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

/// Throws Error (config) if the samples of monitor.samples cannot be generated. This is the case if
/// the model does not generate text, the run has no evaluations, or a prompt has no tokens or
/// leaves no position for new ones.
void check_samples(const Job& job);

/// Continues each prompt greedily with the current model and the run's own parallel plan. Each new
/// token needs one forward pass over all whole sequences: no cache is used, so that no weights need
/// to be moved. Rank 0 passes the text to its monitor. Does nothing without prompts. Must be called
/// on every rank.
void write_samples(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
