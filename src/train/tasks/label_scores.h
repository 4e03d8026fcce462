// How likely each label's text is behind a prompt, under any plan.
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

/// The log-likelihoods of rows of batches, as parallel::ParallelModel::row_scores.
using RowScorer =
    std::function<std::vector<at::Tensor>(std::span<const nn::ForwardInputs> batches)>;

/// What reads prompts: where the plan lets it, the model by itself, which reads each prompt once
/// for all labels; else whole rows, as many of a prompt as there are labels or choices.
struct PromptReader {
  const nn::LanguageModel* cacheable = nullptr;  // as parallel::ParallelModel::cacheable
  RowScorer rows;
  c10::Device device = c10::kCPU;
};

/// The labels of prompts [B, T], whose padding is at their ends: "logits", float32 [B, K] of each
/// batch on the CPU. By likelihood: log-likelihoods over the labels' lengths. Greedy: tokens are
/// chosen one by one among those that labels go on with; the label that is reached has 0, and each
/// other one how much less likely than the chosen token the one is by which it leaves the path.
/// Every rank must call, ranks of one data coordinate with the same batches, all with as many.
std::vector<at::Tensor> label_logits(
    const PromptReader& reader,
    const WrittenLabels& labels,
    std::span<const nn::ForwardInputs> batches);

/// The same of one prompt, [1, K]. Every rank must call, with the same one.
at::Tensor label_logits_of(
    const PromptReader& reader, const WrittenLabels& labels, const std::vector<int64_t>& prompt);

}  // namespace lockstep::train
