// Token scores of texts. Texts with a common prefix are read together, as a tree.
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
  /// Returns the sum of log p.
  double log_likelihood() const;
  /// Returns the mean of -log p, or 0 if there are no tokens.
  double loss() const;
};

/// Divides the texts into groups for score_trees() and returns their indices. Texts with a common
/// prefix form a group if the model supports trees (nn::takes_trees). Otherwise each text is a
/// group of its own, sorted by length.
std::vector<std::vector<size_t>> groups_to_read(
    const nn::LanguageModel& model, std::span<const data::JudgedText> texts);

/// Scores each group of texts as a tree, in one pass per tree. The first token of a text is not
/// predicted and has no score. A group with several texts requires a model that supports trees.
/// Computes no gradients. Must be called on every rank that holds a shard of the model, with the
/// same arguments.
std::vector<AnswerScore> score_trees(
    const nn::LanguageModel& model,
    std::span<const data::JudgedText> texts,
    std::span<const std::vector<size_t>> groups,
    c10::Device device);

}  // namespace lockstep::train
