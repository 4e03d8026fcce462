// Creates pipeline stages from pipeline options.
#include "parallel/pipeline/options.h"

#include "model/split.h"

namespace lockstep::parallel {

std::vector<nn::ModelPart> parts_of_rank(
    const model::ModelConfig& config,
    const PipelineOptions& options,
    int rank,
    int ranks,
    int64_t sequence_length) {
  const Schedules schedules(options, ranks);
  const std::vector<nn::ModelPart> all = model::split_model(
      config,
      {.stages = schedules.stages(), .split = options.split, .sequence_length = sequence_length});
  std::vector<nn::ModelPart> parts;
  for (const int stage : schedules.stages_of(rank)) {
    parts.push_back(all[static_cast<size_t>(stage)]);
  }
  return parts;
}

std::shared_ptr<DeferredQueue> apply_deferral(
    nn::LanguageModel& stage, const PipelineOptions& options, int ranks) {
  if (!Schedules(options, ranks).splits_backward()) {
    return nullptr;
  }
  auto queue = std::make_shared<DeferredQueue>();
  defer_weight_gradients(stage, queue);
  return queue;
}

}  // namespace lockstep::parallel
