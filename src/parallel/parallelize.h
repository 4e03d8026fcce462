// From a model's description, a plan and a mesh to what the trainer drives: the one door to the
// strategies, and the order in which they are applied.
//
//   1. the pipeline's split            which layers a stage has, still without memory
//      then each stage of this rank:
//   2. adaptation and freezing         what of the model is trained, and by what
//   3. tensor parallelism              layers and parameters become this rank's parts
//   4. expert parallelism              this rank's experts, and the way to the others
//   5. parts of sequences              dropouts and attention of this rank's positions
//   6. context parallelism             attention looks beyond the part; takes tensor's heads
//   7. deferral of weight gradients    around whatever stands in linears by now
//   8. recomputation                   around each layer; leaves gradients where deferral does
//   9. data parallelism and ZeRO       around each unit; the parameters get memory and values
//      then the optimizer has the stages' shards, and the model runs the pipeline of them.
#pragma once

#include <memory>

#include "parallel/evaluation_model.h"
#include "parallel/model_spec.h"
#include "parallel/parallel_model.h"
#include "parallel/plan.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// The model ready to be trained. No rank ever holds more than it keeps between steps. Every rank
/// must call; `axes` must outlive the result. Throws Error: kConfig where the plan does not fit the
/// model or the mesh, kOutOfMemory, and what `fill` throws.
std::unique_ptr<ParallelModel> parallelize(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes);

/// A whole model that holds values, under data parallelism alone: all ranks get rank 0's. Every
/// rank must call, with equal models. Throws Error (kConfig) where the mesh has another axis.
std::unique_ptr<ParallelModel> parallelize(
    std::unique_ptr<nn::LanguageModel> model,
    const Plan& plan,
    ParallelGroups& axes,
    objective::ObjectivePointer objective = objective::cross_entropy());

/// The model ready to be evaluated: steps 1 to 6, and values. Else as parallelize.
std::unique_ptr<EvaluationModel> evaluation_model(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes);

/// This rank's part of a model without a pipeline, to be run by hand (generation): steps 2 to 6,
/// and values. Else as parallelize.
ShardedModel make_sharded_model(const ModelSpec& spec, const Plan& plan, ParallelGroups& axes);

}  // namespace lockstep::parallel
