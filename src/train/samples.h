// What the model makes of the prompts of monitor.samples, at each evaluation.
#pragma once

#include <string>
#include <vector>

#include "model/model_config.h"
#include "text/tokenizer.h"
#include "train/job.h"

namespace lockstep::train {

/// The ids of a prompt as a model reads it to go on from there: an encoder-decoder's source ends as
/// in training, with the end of text.
std::vector<int64_t> encode_prompt(
    const text::Tokenizer& tokenizer, const model::ModelConfig& config, const std::string& text);

/// Throws Error (config) where monitor.samples cannot be had: a model that continues no text, no
/// evaluations, a prompt without tokens or with no position left behind it.
void check_samples(const Job& job);

/// Continues each prompt greedily by the model as it is, under the run's own plan: every new token
/// of all prompts is one pass over what there is so far, so nothing is kept between passes and no
/// weight is moved. Rank 0 tells its monitor. Every rank must call; without prompts it does
/// nothing.
void write_samples(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
