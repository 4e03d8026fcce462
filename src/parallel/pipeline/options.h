// What a pipeline's rank builds, by what the user chose.
#pragma once

#include <memory>
#include <vector>

#include "nn/language_model.h"
#include "parallel/autograd/deferred.h"
#include "schedule/schedules.h"

namespace lockstep::parallel {

using schedule::PipelineOptions;
using schedule::Schedules;

/// What rank `rank` of `ranks` pipeline ranks builds of a model: one part a stage, ascending.
/// Throws (config) as Schedules and model::split_model do.
std::vector<nn::ModelPart> parts_of_rank(
    const model::ModelConfig& config,
    const PipelineOptions& options,
    int rank,
    int ranks,
    int64_t sequence_length);

/// Makes the linears of a stage leave weight gradients for later where the schedule of a pipeline
/// of `ranks` puts them off; null: it does not. To be called after layers were swapped.
std::shared_ptr<DeferredQueue> apply_deferral(
    nn::LanguageModel& stage, const PipelineOptions& options, int ranks);

}  // namespace lockstep::parallel
