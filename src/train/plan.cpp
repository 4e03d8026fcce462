#include "train/plan.h"

#include "base/error.h"
#include "base/format.h"

namespace lockstep::train {

mesh::Mesh mesh_of(const config::ParallelSection& parallel, int ranks) {
  return mesh::make_mesh(
      {.data = parallel.data,
       .pipeline = parallel.pipeline,
       .context = parallel.context,
       .tensor = parallel.tensor},
      ranks);
}

void check_plan(const config::ParallelSection& parallel, int64_t length) {
  if (parallel.context > length) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "parallel.context is {} and sequences have {} tokens: a rank would hold none",
            parallel.context,
            length),
        fmt::format("give parallel.context at most {}, or a longer data.sequence_length", length));
  }
}

parallel::Plan plan_of(const config::Config& config) {
  const config::TrainingSection& training = config.training;
  parallel::Plan plan;
  plan.optimizer = {
      training.optim,
      training.adam_beta1,
      training.adam_beta2,
      training.adam_epsilon,
      training.weight_decay};
  plan.max_gradient_norm = training.max_grad_norm;
  plan.bucket_megabytes = training.ddp_bucket_cap_mb;
  plan.find_unused_parameters = training.ddp_find_unused_parameters;
  plan.accumulation_steps = training.gradient_accumulation_steps;
  plan.sequence_sharding = config.parallel.sequence_parallel ? parallel::SequenceSharding::kShards
                                                             : parallel::SequenceSharding::kNone;
  if (config.parallel.pipeline > 1) {  // else its keys say nothing
    plan.pipeline = {
        config.parallel.schedule,
        static_cast<int>(config.parallel.virtual_stages),
        config.parallel.split};
  }
  if (config.data.sequence_length > 0) {
    plan.sequence_length = config.data.sequence_length;
  }
  return plan;
}

}  // namespace lockstep::train
