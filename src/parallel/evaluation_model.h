// A model under a parallelism plan for evaluation only, without gradients and optimizer. With ZeRO
// 3 the parameters are sharded over the data ranks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/pipeline/pipeline.h"
#include "parallel/plan.h"
#include "parallel/ranks/parallel_groups.h"
#include "parallel/ranks/sequence_part.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

class EvaluationModel {
 public:
  /// Use evaluation_model (parallelize.h) to construct one. The stages must have their parameter
  /// values. Must be called on every rank. `axes` must outlive the model.
  EvaluationModel(
      std::vector<ShardedModel> stages,
      const Plan& plan,
      ParallelGroups& axes,
      objective::ObjectivePointer objective);

  /// Same as ParallelModel::statistics.
  Tensor statistics(std::span<const nn::ForwardInputs> batches);
  /// Same as ParallelModel::row_scores, for a reference model.
  std::vector<Tensor> row_scores(std::span<const nn::ForwardInputs> batches);
  /// Returns the class logits of the rows of each batch: float32 [B, classes]. See row_scores() for
  /// the calling rules.
  std::vector<Tensor> class_scores(std::span<const nn::ForwardInputs> batches);
  /// Returns this rank's shard of the head's input for whole batches, and the head's weight, for
  /// objective::FrozenModel. See row_scores() for the calling rules.
  objective::HeadStates head_states(std::span<const nn::ForwardInputs> batches);
  const objective::Objective& objective() const { return pipeline_->objective(); }
  /// See cacheable_model (sharded_model.h).
  const nn::LanguageModel* cacheable() const { return cacheable_; }

 private:
  ParallelGroups& axes_;
  SequencePart part_;
  std::vector<ShardedModel> stages_;
  const nn::LanguageModel* cacheable_;
  std::unique_ptr<Pipeline> pipeline_;
};

}  // namespace lockstep::parallel
