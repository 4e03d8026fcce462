// What a model says of texts, token by token: those that begin alike are read as a tree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <c10/core/Device.h>

#include "data/token_tree.h"
#include "nn/language_model.h"

namespace lockstep::train {

/// Of an answer's tokens, in their order.
struct AnswerScore {
  std::vector<double> log_likelihoods;
  std::vector<bool> likeliest;  // that each was
  /// The sum of log p.
  double log_likelihood() const;
  /// The mean of -log p; 0 of no tokens.
  double loss() const;
};

/// The numbers of all texts, in groups that are read together: texts that begin alike, where the
/// model takes trees (nn::takes_trees), else each by itself, those of like length one after the
/// other.
std::vector<std::vector<size_t>> groups_to_read(
    const nn::LanguageModel& model, std::span<const data::JudgedText> texts);

/// Of each tree's texts, one after the other, by one pass. A text's first token is predicted from
/// nothing, and has no score. Trees of several texts are for models that take them. No gradient.
/// Every rank that holds a part of the model must call, with the same.
std::vector<AnswerScore> score_trees(
    const nn::LanguageModel& model,
    std::span<const data::JudgedText> texts,
    std::span<const std::vector<size_t>> groups,
    c10::Device device);

}  // namespace lockstep::train
