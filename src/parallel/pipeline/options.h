// Pipeline options, and the stages that a rank builds from them.
#pragma once

#include <memory>
#include <vector>

#include "nn/language_model.h"
#include "parallel/autograd/deferred.h"
#include "schedule/schedules.h"

namespace lockstep::parallel {

using schedule::PipelineOptions;
using schedule::Schedules;

/// Returns the model parts for pipeline rank `rank` of `ranks`, one per stage in ascending order.
/// Throws Error (config) as Schedules and model::split_model do.
std::vector<nn::ModelPart> parts_of_rank(
    const model::ModelConfig& config,
    const PipelineOptions& options,
    int rank,
    int ranks,
    int64_t sequence_length);

/// If the schedule for `ranks` pipeline ranks defers weight gradients, makes the linear layers of
/// the stage defer theirs and returns the queue. Returns null otherwise. Call after layers have
/// been replaced.
std::shared_ptr<DeferredQueue> apply_deferral(
    nn::LanguageModel& stage, const PipelineOptions& options, int ranks);

}  // namespace lockstep::parallel
