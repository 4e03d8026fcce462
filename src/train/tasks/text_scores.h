// Token scores of texts. Texts with a common prefix are read together as a tree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <c10/core/Device.h>

#include "data/token_tree.h"
#include "nn/language_model.h"

namespace lockstep::train {

/// Scores of an answer's tokens, in order.
struct AnswerScore {
  std::vector<double> log_likelihoods;
  std::vector<bool> likeliest;  // true if the token was the most likely one
  /// Sum of log p.
  double log_likelihood() const;
  /// Mean of -log p; 0 if there are no tokens.
  double loss() const;
};

/// Groups the indices of all texts for score_trees(). Texts with a common prefix are in one group
/// if the model supports trees (nn::takes_trees). Otherwise each text is a group, sorted by length.
std::vector<std::vector<size_t>> groups_to_read(
    const nn::LanguageModel& model, std::span<const data::JudgedText> texts);

/// Scores the texts of each tree in one pass, tree by tree. A text's first token is not predicted
/// and has no score. Trees of several texts require a model that supports them. Computes no
/// gradients. Every rank that holds a shard of the model must call with the same arguments.
std::vector<AnswerScore> score_trees(
    const nn::LanguageModel& model,
    std::span<const data::JudgedText> texts,
    std::span<const std::vector<size_t>> groups,
    c10::Device device);

}  // namespace lockstep::train
