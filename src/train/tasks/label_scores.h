// Likelihood of each label's text after a prompt, under any parallel plan.
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

/// Computes the log-likelihoods of the rows of batches, like parallel::ParallelModel::row_scores.
using RowScorer =
    std::function<std::vector<at::Tensor>(std::span<const nn::ForwardInputs> batches)>;

/// Reads prompts. If the plan allows, the model is called directly and reads each prompt once for
/// all labels. Otherwise each label or choice of a prompt is a complete row.
struct PromptReader {
  const nn::LanguageModel* cacheable = nullptr;  // see parallel::ParallelModel::cacheable
  RowScorer rows;
  c10::Device device = c10::kCPU;
};

/// Returns the "logits" of the labels of right-padded prompts [B, T]: float32 [B, K] for each
/// batch, on the CPU. With decode=likelihood they are log-likelihoods divided by the labels'
/// lengths. With greedy decoding, tokens are chosen one by one among those that continue a label.
/// The label that is reached gets 0. Every other label gets the log-probability of its token minus
/// that of the chosen token, at the position where it leaves the path. Every rank must call, with
/// the same number of batches; ranks with the same data coordinate pass the same batches.
std::vector<at::Tensor> label_logits(
    const PromptReader& reader,
    const WrittenLabels& labels,
    std::span<const nn::ForwardInputs> batches);

/// Returns the "logits" of one prompt, [1, K]. Every rank must call with the same prompt.
at::Tensor label_logits_of(
    const PromptReader& reader, const WrittenLabels& labels, const std::vector<int64_t>& prompt);

}  // namespace lockstep::train
