// Likelihood of each label's text after a prompt, for any parallel plan.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "nn/forward_context.h"
#include "nn/language_model.h"
#include "train/batches/labelled_data.h"

namespace lockstep::train {

/// Computes the log-likelihoods of batches of rows, like parallel::ParallelModel::row_scores.
using RowScorer =
    std::function<std::vector<at::Tensor>(std::span<const nn::ForwardInputs> batches)>;

/// Reads prompts. If the plan allows it, the model is called directly and reads each prompt once
/// for all labels. Otherwise it reads one complete row for each label or choice of a prompt.
struct PromptReader {
  const nn::LanguageModel* cacheable = nullptr;  // see parallel::ParallelModel::cacheable
  RowScorer rows;
  c10::Device device = c10::kCPU;
};

/// Returns the "logits" of the labels for right-padded prompts [B, T]: float32 [B, K] for each
/// batch, on the CPU. With decode=likelihood, they are log-likelihoods divided by the labels'
/// lengths. With greedy decoding, tokens are chosen one by one among those that continue a label.
/// The chosen label gets 0. Every other label gets the log-probability of its token minus that of
/// the chosen token, at the position where it leaves the path. Must be called on every rank, with
/// the same number of batches. Ranks with the same data coordinate must pass the same batches.
std::vector<at::Tensor> label_logits(
    const PromptReader& reader,
    const WrittenLabels& labels,
    std::span<const nn::ForwardInputs> batches);

/// Returns the "logits" of one prompt, [1, K]. Must be called on every rank with the same prompt.
at::Tensor label_logits_of(
    const PromptReader& reader, const WrittenLabels& labels, const std::vector<int64_t>& prompt);

}  // namespace lockstep::train
