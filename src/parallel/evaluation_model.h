// A model under a plan for evaluation only: no gradients, no optimizer. With ZeRO 3 the data ranks
// share its values.
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
  /// Call evaluation_model (parallelize.h) instead. The stages hold values. Every rank must call;
  /// `axes` must outlive it.
  EvaluationModel(
      std::vector<ShardedModel> stages,
      const Plan& plan,
      ParallelGroups& axes,
      objective::ObjectivePointer objective);

  /// Same as ParallelModel::statistics.
  Tensor statistics(std::span<const nn::ForwardInputs> batches);
  /// Same as ParallelModel::row_scores, for a reference model.
  std::vector<Tensor> row_scores(std::span<const nn::ForwardInputs> batches);
  /// Returns the class logits of the rows, float32 [B, classes] per batch. Otherwise as
  /// row_scores().
  std::vector<Tensor> class_scores(std::span<const nn::ForwardInputs> batches);
  /// Returns the head's input of whole batches for this rank's shard, and the head's weight, for
  /// objective::FrozenModel. Otherwise as row_scores().
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
