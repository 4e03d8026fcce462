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
  const config::ParallelSection& section = config.parallel;
  plan.zero_stage = static_cast<int>(section.zero_stage);
  plan.prefetch_units = section.prefetch_units;
  plan.persistence_threshold = section.persistence_threshold;
  const config::OffloadSection& offload = section.offload_optimizer;
  plan.offload_optimizer = {
      offload.device == "nvme"  ? parallel::OffloadDevice::kNvme
      : offload.device == "cpu" ? parallel::OffloadDevice::kCpu
                                : parallel::OffloadDevice::kNone,
      offload.path};
  plan.offload_parameters = section.offload_param.device == "cpu";
  plan.recompute.every = section.recompute_every;
  plan.recompute.kind = section.recompute == "full"        ? parallel::Recompute::kFull
                        : section.recompute == "selective" ? parallel::Recompute::kSelective
                                                           : parallel::Recompute::kNone;
  plan.bucket_megabytes = training.ddp_bucket_cap_mb;
  plan.find_unused_parameters = training.ddp_find_unused_parameters;
  plan.accumulation_steps = training.gradient_accumulation_steps;
  plan.sequence_sharding = config.parallel.sequence_parallel ? parallel::SequenceSharding::kShards
                                                             : parallel::SequenceSharding::kNone;
  plan.context_attention = section.context_attention == "ulysses"
                               ? parallel::ContextAttention::kUlysses
                               : parallel::ContextAttention::kRing;
  plan.zero_in_pipeline = section.zero_in_pipeline ? parallel::ZeroInPipeline::kAllow
                                                   : parallel::ZeroInPipeline::kRefuse;
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
