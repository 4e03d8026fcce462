// ZeRO for a language model: defines its units and creates the engine that owns their parameters.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "nn/language_model.h"
#include "parallel/data/data_parallel.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

/// Moves the parameters of a model (or of a stage) into an engine over the ranks of `group` and
/// runs the model's units through it, around existing wrappers. The head writes the gradient of its
/// vocabulary weight directly into the reduction buffer. `parameters` describes this rank's shards;
/// `takes` selects the engine's parameters (null: all). The engine counts squared gradients, each
/// element once over all ranks that hold it, and aligns shards at least as the device prefers. Must
/// be the last strategy that is applied, and must be called on every rank of the group. The engine
/// must outlive the model's passes.
std::unique_ptr<DataParallel> apply_zero(
    nn::LanguageModel& model,
    const ShardedParameters& parameters,
    comm::Communicator& group,
    DataParallelOptions options,
    const std::function<bool(const std::string& name)>& takes = nullptr);

}  // namespace lockstep::parallel
