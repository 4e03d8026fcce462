// Builds the model for the trainer from a specification, a plan and a mesh. This is the only entry
// point to the parallelism strategies. They are applied in this order:
//
//   1. pipeline split              assigns layers to stages; no memory is allocated yet
//      then, for each stage of this rank:
//   2. adaptation and freezing     selects the trained parameters and adds adapters
//   3. tensor parallelism          replaces layers and parameters by this rank's shards
//   4. expert parallelism          keeps this rank's experts and adds the token exchange
//   5. sequence shards             restricts dropout and attention to this rank's positions
//   6. context parallelism         extends attention to other shards; uses the heads of step 3
//   7. deferred weight gradients   wraps the linear layers that result from steps 2 to 6
//   8. recomputation               wraps each layer; queues its gradients if step 7 applies
//   9. data parallelism and ZeRO   wraps each unit; allocates and fills the parameters
//
// Then the optimizer receives the stages' shards, and the model gets its pipeline.
#pragma once

#include <memory>

#include "parallel/evaluation_model.h"
#include "parallel/model_spec.h"
#include "parallel/parallel_model.h"
#include "parallel/plan.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// Returns a model that is ready for training. No rank allocates more parameter memory than it
/// stores between steps. Must be called on every rank. `axes` must outlive the result. Throws
/// Error: kConfig if the plan does not fit the model or the mesh, kOutOfMemory, and the errors of
/// `fill`.
std::unique_ptr<ParallelModel> parallelize(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes);

/// Overload for a whole model that already has values. Supports data parallelism only. All ranks
/// receive rank 0's values. Must be called on every rank with models of the same structure. Throws
/// Error (kConfig) if the mesh has another axis.
std::unique_ptr<ParallelModel> parallelize(
    std::unique_ptr<nn::LanguageModel> model,
    const Plan& plan,
    ParallelGroups& axes,
    objective::ObjectivePointer objective = objective::cross_entropy());

/// Returns a model that is ready for evaluation, built by steps 1 to 6 with parameter values.
/// Otherwise like parallelize().
std::unique_ptr<EvaluationModel> evaluation_model(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes);

/// Returns this rank's shard of a model without a pipeline, for direct use (generation), built by
/// steps 2 to 6 with parameter values. Otherwise like parallelize().
ShardedModel make_sharded_model(const ModelSpec& spec, const Plan& plan, ParallelGroups& axes);

}  // namespace lockstep::parallel
