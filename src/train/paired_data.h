// Loads the data of preference tuning and unlearning and builds their reference models. Used by
// job.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "parallel/plan.h"
#include "train/job.h"
#include "train/weights/model_loading.h"

namespace lockstep::train {

/// Opens preference data and sets the objective. All functions of this file must be called on every
/// rank.
void open_answers(Job& job, int64_t length, RankContext& rank_context);
/// Opens labelled rows for generative classification.
void open_written_labels(Job& job, int64_t length, RankContext& rank_context);
/// Opens the forget set and the retain set.
void open_unlearning(Job& job, int64_t length, RankContext& rank_context);

/// Computes the scores of the answers under the reference model, which is the model at the start of
/// training. Must therefore be called before a checkpoint is restored.
void score_answers(Job& job, RankContext& rank_context);
/// Returns the frozen reference model of unlearning, which provides distributions and hidden
/// states. Null if the method needs none. If `model` has adapters, the reference is the same model
/// without them. Otherwise it is a second model, built from `spec` with the same plan. For RMU, it
/// also has the target hidden state of the forget set. All arguments must outlive it.
std::shared_ptr<objective::Reference> unlearning_reference(
    const config::Config& config,
    parallel::ParallelModel& model,
    parallel::ModelSpec spec,
    const parallel::Plan& plan,
    parallel::ParallelGroups& axes);
/// For PDU: updates the weight of the retain loss, either from the step's loss or, at the end of an
/// epoch, from the loss over all rows.
void follow_retain_loss(
    Job& job, const parallel::StepResult& result, bool epoch_ends, RankContext& rank_context);
/// Returns the weights of the layers that a truncated model does not run and that are saved
/// unchanged.
std::optional<UntouchedWeights> untouched_weights(const Job& job, ModelRequest request);

/// Evaluates a classifier. The metrics are computed from the rows' logits, not from the objective's
/// sums. Throws Interrupted if a signal ends the evaluation.
Evaluation evaluate_classifier(Job& job, const data::SequenceView& rows, RankContext& rank_context);

/// Fits the final model's temperature on data.validation.
void calibrate(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
