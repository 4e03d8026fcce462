// Answers of a job: opened, and what they are compared to. For job.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "parallel/plan.h"
#include "train/job.h"
#include "train/weights/model_loading.h"

namespace lockstep::train {

/// Opens preferences and how they are judged. Every rank must call, here and below.
void open_answers(Job& job, int64_t length, RankContext& rank_context);
/// Opens rows whose labels are written.
void open_written_labels(Job& job, int64_t length, RankContext& rank_context);
/// Opens what is to be forgotten and kept.
void open_unlearning(Job& job, int64_t length, RankContext& rank_context);

/// Scores answers by the reference. Before a checkpoint is read: it is the model that training
/// begins with.
void score_answers(Job& job, RankContext& rank_context);
/// What unlearning compares distributions and hidden states to: the model as it was. Of `model`
/// with adapters that one, without them; else a second one of `spec`, under the same plan. Of RMU,
/// with the direction that rows to be forgotten are pushed to. Null: nothing is compared. What it
/// is made of must outlive it.
std::shared_ptr<objective::Reference> unlearning_reference(
    const config::Config& config,
    parallel::ParallelModel& model,
    parallel::ModelSpec spec,
    const parallel::Plan& plan,
    parallel::ParallelGroups& axes);
/// Of PDU: lets the weight of what is kept follow the loss of a step, or at an epoch's end that of
/// all rows.
void follow_retain_loss(
    Job& job, const parallel::StepResult& result, bool epoch_ends, RankContext& rank_context);
/// Of a model that ends at a layer: what of the whole is saved as it was.
std::optional<UntouchedWeights> untouched_weights(const Job& job, ModelRequest request);

/// Of a classifier: the metrics are of the rows' numbers, and not of the objective's sums.
Evaluation evaluate_classifier(
    Job& job,
    const data::SequenceView& rows,
    RankContext& rank_context,
    const std::function<void(int64_t done, int64_t all)>& progress);

/// Finds the temperature of the model that is kept, on data.validation.
void calibrate(Job& job, RankContext& rank_context);

}  // namespace lockstep::train
