#include "train/planned_job.h"

#include <algorithm>
#include <filesystem>

#include "mesh/mesh.h"

namespace lockstep::train {

plan::Software our_software(const model::ModelConfig& model, plan::Precision precision) {
  plan::Software software;
  software.bucket_bytes = 50e6;
  software.dropout = model.attention_dropout > 0 || model.residual_dropout > 0;
  if (precision == plan::Precision::kFloat32) {
    software.weight_bytes = 4;
    software.gradient_bytes = 4;
    software.optimizer_bytes = 8;  // the weights are their own masters
    software.reduce_bytes = 4;
  }
  // The loss is made in runs of rows; the head's gradient beside it.
  software.logit_bytes = precision == plan::Precision::kFloat32 ? 4 : 2;
  software.logit_limit = 96 * 1024 * 1024;
  software.head_gradient_bytes = 4;
  software.working_copies = 2;
  software.keeps_heads = true;
  software.mask_bytes = 0;  // drawn again
  return software;
}

plan::Job planned_job(
    const config::Config& config, const model::ModelConfig& model, int64_t devices) {
  const config::ParallelSection& parallel = config.parallel;
  plan::Job job;
  job.model = model;
  job.sequence = config.data.sequence_length > 0 ? config.data.sequence_length
                                                 : std::min<int64_t>(job.model.max_positions, 1024);
  job.mesh = mesh::make_mesh(
      {.data = parallel.data,
       .pipeline = parallel.pipeline,
       .context = parallel.context,
       .tensor = parallel.tensor},
      static_cast<int>(std::clamp<int64_t>(devices, 1, 1000000)));
  job.micro_batch = config.training.per_device_train_batch_size;
  job.global_batch = job.micro_batch * config.training.gradient_accumulation_steps *
                     static_cast<int64_t>(job.mesh.data);
  job.zero_stage = static_cast<int>(parallel.zero_stage);
  job.sequence_parallel = parallel.sequence_parallel;
  // A file's schedule is timed as 1F1B.
  job.schedule = std::filesystem::exists(parallel.schedule)
                     ? schedule::Kind::kOneFOneB
                     : schedule::parse_kind(parallel.schedule);
  job.virtual_stages =
      job.schedule == schedule::Kind::kZbV ? 2 : static_cast<int>(parallel.virtual_stages);
  const bool full = parallel.recompute == "full" || config.training.gradient_checkpointing;
  job.recompute = full ? plan::Recompute::kFull : plan::Recompute::kNone;
  if (parallel.offload_param.device != "none") {
    job.offload = plan::Offload::kAll;
  } else if (parallel.offload_optimizer.device != "none") {
    job.offload = plan::Offload::kOptimizer;
  }
  const bool files =
      parallel.offload_param.device == "nvme" || parallel.offload_optimizer.device == "nvme";
  job.offload_to = files ? plan::OffloadTo::kNvme : plan::OffloadTo::kHost;
  const bool half = config.training.bf16 || config.training.fp16;
  job.precision = half ? plan::Precision::kMixed16 : plan::Precision::kFloat32;
  job.software = our_software(model, job.precision);
  return job;
}

}  // namespace lockstep::train
