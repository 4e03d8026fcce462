// Builds the planner's job description from a configuration.
#include "plan/from_config/planned_job.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/processor.h"
#include "config/mesh.h"
#include "config/tasks.h"
#include "mesh/mesh.h"
#include "model/description.h"
#include "model/lora_config.h"
#include "model/split.h"
#include "plan/from_config/adapters.h"
#include "plan/from_config/float8.h"
#include "plan/from_config/quantization.h"
#include "schedule/file.h"
#include "schedule/schedules.h"

namespace lockstep::plan {

Software our_software(const model::ModelConfig& model, Precision precision) {
  Software software;
  software.dropout = model.attention_dropout > 0 || model.residual_dropout > 0;
  if (precision == Precision::kFloat32) {
    software.weight_bytes = 4;
    software.gradient_bytes = 4;
    software.optimizer_bytes = 8;  // float32 weights need no master copies
    software.reduce_bytes = 4;
  }
  // The loss is computed in chunks of rows. The gradient of the head is stored separately in the
  // head's type.
  software.logit_bytes = precision == Precision::kFloat32 ? 4 : 2;
  software.shared_logit_bytes = precision == Precision::kFloat32 ? 4 : 7;
  software.logit_limit = 1 << 30;
  software.head_gradient_bytes = software.logit_bytes;
  software.head_sum_bytes = precision == Precision::kFloat32 ? 0 : 4;
  // SwiGLU is one operation. The backward pass of ReLU needs only its output, which is already
  // stored as input of the next product.
  software.keeps_gated = model.activation != model::Activation::kSilu;
  software.keeps_ungated = model.activation != model::Activation::kRelu || model.mlp_dropout > 0;
  software.mask_bytes = 0;  // regenerated in the backward pass
  software.sum_bytes = 4;
  // Products accumulate into the gradient sum: they read it and write 4 bytes instead of 2.
  software.sum_bytes_moved = precision == Precision::kFloat32 ? 4 : 4 + 2;
  software.reduces_in_place = true;
  software.balances_stages = true;
  software.head_in_forward = true;
  software.cuts_messages = false;
  software.ring_in_memory = true;
  software.fragmentation = 0.05;  // allocator with expandable segments
  software.keeps_exchanged = true;
  software.tensor_copy = 3;    // cloned before the all-reduce; bias added afterwards
  software.sequence_copy = 5;  // shards are not contiguous before and after
  software.rounds_again = true;
  software.rounding_bytes = 2 + 2 + 1;  // read for the maximum, read for rounding, written
  return software;
}

void run_on_cpu(Software& software, const config::TrainingSection& training) {
  constexpr double kProgram = 150e6;  // bytes of libraries and program
  software.logit_limit = 96 << 20;
  software.context_bytes = kProgram;
  software.fragmentation = 0;
  software.device_is_host = true;  // uses the allocator of ops/host_memory.h
  software.overlap_data = false;   // communication and compute share cores
  const bool is_half = training.fp16, is_float = !is_half && !training.bf16;
  const InstructionSet unit = instruction_set();
  const InstructionSet head = is_float ? InstructionSet::kAvx512 : InstructionSet::kAvx512Bfloat16;
  software.fused_head = !is_half && unit >= head;
  software.lays_out = !is_half && !is_float && unit >= InstructionSet::kAmx;
  software.sum_bytes_moved =
      is_float ? 4 : 2 + 4 + 4;  // a separate kernel accumulates 16-bit gradients
  // Without the fused head, softmax stores three float32 numbers per logit.
  software.logit_bytes = (is_float ? 4 : 2) + (software.fused_head ? 0 : 12);
}

namespace {

constexpr double kAdamwMoments = 8;  // bytes per parameter, included in our_software()

/// Returns the fraction of a model's parameters in hidden matrices (updated by Muon).
double share_of_hidden_matrices(const model::ModelConfig& model) {
  double hidden = 0, all = 0;
  for (const model::ParameterSpec& parameter : model::parameters_of(model)) {
    const auto elements = static_cast<double>(parameter.elements());
    all += elements;
    hidden += parameter.is_hidden_matrix() ? elements : 0;
  }
  return all > 0 ? hidden / all : 0;
}

/// Returns the bytes of optimizer state per parameter, without the master copy.
double moment_bytes(const std::string& optim, const model::ModelConfig& model, bool has_masters) {
  if (optim.ends_with("8bit")) {
    return 2 *
           (1 + 4.0 / 256);  // two moments: one byte each, plus a float32 scale per block of 256
  }
  if (optim == "lion_32bit" || optim == "adam_mini") {
    return 4;
  }
  if (optim == "muon") {  // one moment for hidden matrices, two for all other parameters
    return kAdamwMoments - 4 * share_of_hidden_matrices(model);
  }
  if (optim == "ademamix") {
    return 12;
  }
  if (optim == "schedule_free_adamw") {  // the master copy also stores the average
    return has_masters ? 8 : 12;
  }
  // Adafactor stores only one row and one column per matrix.
  return optim == "sgd" || optim == "adafactor" ? 0 : kAdamwMoments;
}

void fill_recompute(const config::Config& config, Job& job) {
  const config::ParallelSection& parallel = config.parallel;
  if (parallel.recompute == "selective") {
    job.recompute = Recompute::kActivation;
  } else if (parallel.recompute == "full" || config.training.gradient_checkpointing) {
    job.recompute = Recompute::kFull;
    const int64_t layers = std::max<int64_t>(job.model.layers, 1);
    const int64_t every = std::max<int64_t>(parallel.recompute_every, 1);
    job.recompute_share =
        static_cast<double>((layers + every - 1) / every) / static_cast<double>(layers);
    job.recompute_others = Recompute::kNone;
  }
}

}  // namespace

Job planned_job(
    const config::Config& config,
    const model::ModelConfig& model,
    int64_t devices,
    int64_t devices_per_node) {
  const config::ParallelSection& parallel = config.parallel;
  Job job;
  job.model = model;
  job.set_data_length(
      config.data.sequence_length > 0 ? config.data.sequence_length
                                      : std::min<int64_t>(job.model.max_positions, 1024));
  job.mesh = mesh::make_mesh(
      {.data = parallel.data,
       .pipeline = parallel.pipeline,
       .context = parallel.context,
       .tensor = parallel.tensor},
      static_cast<int>(std::clamp<int64_t>(devices, 1, 1000000)));
  const int64_t rows = config::unlearns(config.task) ? config::rows_of_unlearning(config.unlearning)
                                                     : config::rows_of_sequence(config);
  job.micro_batch = config.training.per_device_train_batch_size * rows;
  job.global_batch = job.micro_batch * config.training.gradient_accumulation_steps *
                     static_cast<int64_t>(job.mesh.data);
  job.zero_stage = static_cast<int>(parallel.zero_stage);
  job.expert_ranks = static_cast<int>(config.parallel.expert);
  job.shard_ranks = config::shard_ranks_of(
      parallel,
      job.mesh.ranks(),
      static_cast<int>(std::min<int64_t>(devices_per_node, job.mesh.ranks())));
  job.sequence_parallel = parallel.sequence_parallel;
  job.context_attention = parallel.context_attention == "ulysses" ? ContextAttention::kUlysses
                                                                  : ContextAttention::kRing;
  if (schedule::names_a_file(parallel.schedule)) {
    if (job.mesh.pipeline > 1) {  // checks that the schedule file matches the job
      schedule::Schedules schedules({.schedule = parallel.schedule}, job.mesh.pipeline);
      schedules.of(static_cast<int>(config.training.gradient_accumulation_steps));
    }
    job.schedule = schedule::Kind::kFile;
    job.listed = std::make_shared<ListedSchedule>(
        ListedSchedule{parallel.schedule, schedule::read_schedule(parallel.schedule)});
    job.virtual_stages = job.listed->schedule.virtual_stages();
  } else {
    job.schedule = schedule::parse_kind(parallel.schedule);
    job.virtual_stages =
        job.schedule == schedule::Kind::kZbV ? 2 : static_cast<int>(parallel.virtual_stages);
  }
  fill_recompute(config, job);
  if (job.mesh.pipeline > 1 && parallel.split != "auto") {
    for (const model::ModelPart& part : model::split_model(
             model,
             {.stages = static_cast<int>(stages_of(job)),
              .split = parallel.split,
              .sequence_length = job.data_length()})) {
      job.split.push_back(part.layers);
    }
  }
  if (parallel.offload_param.device != "none") {
    job.offload = Offload::kAll;
  } else if (parallel.offload_optimizer.device != "none") {
    job.offload = Offload::kOptimizer;
  }
  const bool files =
      parallel.offload_param.device == "nvme" || parallel.offload_optimizer.device == "nvme";
  job.offload_to = files ? OffloadTo::kNvme : OffloadTo::kHost;
  if (config.checkpoint.in_memory_replicas > 0) {
    // The last two states; on several nodes also two replicas of a neighbor's.
    job.in_memory_checkpoints = job.mesh.ranks() > devices_per_node ? 4 : 2;
  }
  const bool half = config.training.bf16 || config.training.fp16;
  job.precision = half ? Precision::kMixed16 : Precision::kFloat32;
  if (const auto float8 = float8_of(config.precision)) {
    job.precision = Precision::kFloat8;
    const auto narrow = static_cast<double>(model::float8_blocks(*float8, model));
    job.float8_share = narrow / static_cast<double>(std::max<int64_t>(model.layers, 1));
  }
  job.software = our_software(model, job.precision);
  job.software.scaling = config.precision.fp8.starts_with("row") ? Scaling::kRow : Scaling::kTensor;
  if (config.training.fp16) {
    job.software.gradient_bytes = job.software.reduce_bytes = 4;
  }
  job.software.optimizer_bytes +=
      moment_bytes(config.training.optim, model, config.training.bf16) - kAdamwMoments;
  if (config.precision.stochastic_rounding && config.training.bf16) {
    job.software.optimizer_bytes -= 4;  // no master copy
    job.software.update_copy = 4;       // temporary master copy of the unit being updated
  }
  if (config.training.optim == "adafactor") {
    constexpr double kAtOnce = 1 << 20, kEach = 36;  // elements per chunk; bytes per element
    job.software.update_scratch =
        std::min(kAtOnce, static_cast<double>(model::parameter_count(model))) * kEach;
  }
  if (config.lora != config::LoraSection{}) {
    const model::LoraConfig lora = lora_config_of(config.lora);
    job.adapter_rank = lora.r;
    job.adapter_share = adapter_share(config.lora, model);
    job.adapters_decompose = lora.use_dora;
    job.adapters_drop = lora.lora_dropout > 0;
    job.frozen_bytes = half ? 2 : 4;
    if (const auto packed = packed_as(model, config.quantization)) {
      job.frozen_bytes = packed_bytes(packed->bits, packed->double_quant, packed->block_size);
    }
  }
  if (config::unlearns(config.task) && config::needs_distributions(config.unlearning) &&
      job.adapter_rank == 0) {
    job.reference_bytes = half ? 2 : 4;
  }
  job.software.unit_bytes = config.training.ddp_bucket_cap_mb * (1 << 20);
  return job;
}

}  // namespace lockstep::plan
