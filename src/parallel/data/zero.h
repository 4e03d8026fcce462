// ZeRO for a language model: its units and the engine that owns their parameters.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "nn/language_model.h"
#include "parallel/data/data_parallel.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

/// Hands the parameters of a model (or of a stage) to an engine of the ranks in `group` and makes
/// the model's units run through it, around existing wrappers; the head writes the gradient of its
/// vocabulary where it is summed. `parameters` describes this rank's shards; `takes` selects the
/// parameters of the engine (null: all). Squares are counted, each element once over all holders;
/// alignment is at least the device's preferred one. Call last of the strategies; every rank of the
/// group must call. The engine must outlive the model's passes.
std::unique_ptr<DataParallel> apply_zero(
    nn::LanguageModel& model,
    const ShardedParameters& parameters,
    comm::Communicator& group,
    DataParallelOptions options,
    const std::function<bool(const std::string& name)>& takes = nullptr);

}  // namespace lockstep::parallel
