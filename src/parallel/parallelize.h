// Creates the model that the trainer drives from a description, a plan and a mesh. This is the only
// entry point to the strategies and defines the order in which they are applied:
//
//   1. pipeline split                  the layers of each stage, still without memory
//      then for each stage of this rank:
//   2. adaptation and freezing         which parameters are trained, and how
//   3. tensor parallelism              layers and parameters become this rank's shards
//   4. expert parallelism              this rank's experts, and the exchange with the others
//   5. sequence shards                 dropouts and attention of this rank's positions
//   6. context parallelism             attention beyond the shard; uses tensor parallelism's heads
//   7. deferred weight gradients       around the linears as they are by now
//   8. recomputation                   around each layer; queues gradients if deferral does
//   9. data parallelism and ZeRO       around each unit; the parameters get memory and values
//      then the optimizer gets the stages' shards, and the model runs their pipeline.
#pragma once

#include <memory>

#include "parallel/evaluation_model.h"
#include "parallel/model_spec.h"
#include "parallel/parallel_model.h"
#include "parallel/plan.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// Returns the model ready for training. No rank ever allocates more than it stores between steps.
/// Every rank must call; `axes` must outlive the result. Throws Error: kConfig if the plan does not
/// fit the model or the mesh, kOutOfMemory, and errors of `fill`.
std::unique_ptr<ParallelModel> parallelize(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes);

/// Trains a whole model that holds values, with data parallelism only: all ranks get rank 0's
/// values. Every rank must call with equal models. Throws Error (kConfig) if the mesh has another
/// axis.
std::unique_ptr<ParallelModel> parallelize(
    std::unique_ptr<nn::LanguageModel> model,
    const Plan& plan,
    ParallelGroups& axes,
    objective::ObjectivePointer objective = objective::cross_entropy());

/// Returns the model ready for evaluation: steps 1 to 6, and values. Otherwise as parallelize.
std::unique_ptr<EvaluationModel> evaluation_model(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes);

/// Returns this rank's shard of a model without a pipeline, for direct use (generation): steps 2 to
/// 6, and values. Otherwise as parallelize.
ShardedModel make_sharded_model(const ModelSpec& spec, const Plan& plan, ParallelGroups& axes);

}  // namespace lockstep::parallel
