// Models under a parallelism plan, for evaluation only.
#include "parallel/evaluation_model.h"

namespace lockstep::parallel {

EvaluationModel::EvaluationModel(
    std::vector<ShardedModel> stages,
    const Plan& plan,
    ParallelGroups& axes,
    objective::ObjectivePointer objective)
    : axes_(axes),
      part_(sequence_part(plan, axes)),
      stages_(std::move(stages)),
      cacheable_(cacheable_model(stages_, plan, axes.mesh())) {
  std::vector<nn::LanguageModel*> models;
  for (const ShardedModel& stage : stages_) {
    models.push_back(stage.model.get());
  }
  pipeline_ = std::make_unique<Pipeline>(
      models,
      std::vector<Accumulation>(models.size()),
      plan.pipeline,
      axes_.along(mesh::Axis::kPipeline),
      LossOptions{std::move(objective), &axes_.along(mesh::Axis::kContext)});
}

Tensor EvaluationModel::statistics(std::span<const nn::ForwardInputs> batches) {
  const std::vector<nn::ForwardInputs> own = shard_inputs(batches, part_);
  Tensor sums = pipeline_->statistics(own);
  axes_.along(mesh::Axis::kPipeline).all_reduce(sums).wait();
  return sums;
}

std::vector<Tensor> EvaluationModel::row_scores(std::span<const nn::ForwardInputs> batches) {
  return pipeline_->row_scores(shard_inputs(batches, part_));
}

objective::HeadStates EvaluationModel::head_states(std::span<const nn::ForwardInputs> batches) {
  return pipeline_->head_states(shard_inputs(batches, part_));
}

std::vector<Tensor> EvaluationModel::class_scores(std::span<const nn::ForwardInputs> batches) {
  return pipeline_->class_scores(
      shard_inputs(batches, part_), stages_.front().model->config().head_rows());
}

}  // namespace lockstep::parallel
