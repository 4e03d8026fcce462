// Converts the configuration of a run to its parallel plan and compute type.
#include "train/plan.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::train {

void check_plan(const config::ParallelSection& parallel, int64_t length) {
  if (parallel.context > length) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "parallel.context is {}, but sequences have {} tokens: some ranks would have none",
            parallel.context,
            length),
        fmt::format("set parallel.context to at most {}, or raise data.sequence_length", length));
  }
}

void check_mixture(const config::Config& config, const model::ModelConfig& model) {
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error(ErrorKind::kConfig, what, remedy);
  };
  const config::TrainingSection& training = config.training;
  const model::Experts& experts = model.experts;
  if (experts.count == 0) {
    const bool asks = !training.router_aux_loss.empty() && training.router_aux_loss != "none";
    if (asks || training.router_z_loss_coef > 0 || training.expert_capacity_factor) {
      refuse(
          fmt::format(
              "training.{} is set, but the model has no experts",
              asks                              ? "router_aux_loss"
              : training.router_z_loss_coef > 0 ? "router_z_loss_coef"
                                                : "expert_capacity_factor"),
          "remove it, or train a mixture-of-experts model");
    }
  } else if (
      training.expert_capacity_factor.value_or(0) * static_cast<double>(experts.per_token) >=
      static_cast<double>(experts.count)) {
    refuse(
        fmt::format(
            "training.expert_capacity_factor={} drops nothing: with {} of {} experts per token, no "
            "token is dropped from {:.4g} on",
            *training.expert_capacity_factor,
            experts.per_token,
            experts.count,
            static_cast<double>(experts.count) / static_cast<double>(experts.per_token)),
        "remove it, which is faster, or set a smaller value");
  } else if (experts.wants_balance && training.router_aux_loss.empty()) {
    refuse(
        fmt::format(
            "the model's config.json sets output_router_logits: transformers then adds {} times a "
            "load-balancing loss to each micro-batch's loss",
            experts.balance_loss),
        "set training.router_aux_loss to sequence (the same under every plan), micro_batch (as in "
        "transformers) or none");
  }
  if (config.parallel.expert > std::max<int64_t>(experts.count, 1)) {
    refuse(
        fmt::format(
            "parallel.expert is {}, but the model has {} experts",
            config.parallel.expert,
            experts.count),
        experts.count == 0 ? "leave parallel.expert at 1 for this model"
                           : fmt::format("set parallel.expert to at most {}", experts.count));
  }
  if (config.parallel.expert_halves && config.parallel.expert == 1) {
    refuse(
        "parallel.expert_halves is set, but parallel.expert is 1: there is no expert all-to-all to "
        "overlap",
        "remove it, or distribute the experts with parallel.expert");
  }
}

namespace {

std::optional<at::ScalarType> reduce_type_of(const std::string& name) {
  return name == "float32"    ? std::optional(at::kFloat)
         : name == "bfloat16" ? std::optional(at::kBFloat16)
         : name == "float16"  ? std::optional(at::kHalf)
                              : std::nullopt;
}

parallel::LossScaleOptions loss_scale_of(const config::LossScaleSection& section) {
  return {
      .fixed = section.fixed,
      .initial_power = section.initial_power,
      .window = section.window,
      .hysteresis = section.hysteresis,
      .consecutive = section.consecutive_hysteresis,
      .least = section.minimum};
}

}  // namespace

at::ScalarType compute_type(const config::TrainingSection& training) {
  return training.bf16 ? at::kBFloat16 : training.fp16 ? at::kHalf : at::kFloat;
}

parallel::Plan plan_of(const config::Config& config) {
  const config::TrainingSection& training = config.training;
  parallel::Plan plan;
  plan.optimizer = {
      training.optim,
      training.adam_beta1,
      training.adam_beta2,
      training.adam_epsilon,
      training.weight_decay,
      config.precision.stochastic_rounding,
      static_cast<uint64_t>(training.seed),
      {training.muon_momentum,
       training.muon_nesterov,
       training.muon_ns_steps,
       training.muon_adjust_lr_fn},
      {training.ademamix_beta3,
       training.ademamix_alpha,
       static_cast<double>(training.ademamix_t_alpha),
       static_cast<double>(training.ademamix_t_beta3)}};
  plan.update_rules = {
      training.learning_rate,
      training.muon_learning_rate,
      training.learning_rates,
      training.weight_decays,
      training.layer_wise_learning_rate_decay};
  plan.loss_scale = loss_scale_of(config.precision.loss_scale);
  plan.reduce_type = reduce_type_of(config.precision.reduce_type);
  plan.max_gradient_norm = std::max(0.0, training.max_grad_norm);
  const config::ParallelSection& section = config.parallel;
  plan.zero_stage = static_cast<int>(section.zero_stage);
  plan.shard_ranks = static_cast<int>(std::max<int64_t>(section.shard_ranks, 0));
  plan.prefetch_units = section.prefetch_units;
  plan.prefetch_elements = section.prefetch_elements;
  plan.persistence_threshold = section.persistence_threshold;
  const config::OptimizerOffloadSection& offload = section.offload_optimizer;
  plan.offload_optimizer = {
      offload.device == "nvme"  ? parallel::OffloadDevice::kNvme
      : offload.device == "cpu" ? parallel::OffloadDevice::kCpu
                                : parallel::OffloadDevice::kNone,
      offload.path,
      offload.ratio};
  plan.offload_parameters = section.offload_param.device != "none";
  if (section.offload_param.device == "nvme") {
    plan.parameter_folder = section.offload_param.path;
  }
  plan.recompute.every = section.recompute_every;
  plan.recompute.kind = section.recompute == "full"        ? parallel::Recompute::kFull
                        : section.recompute == "selective" ? parallel::Recompute::kSelective
                                                           : parallel::Recompute::kNone;
  plan.expert_ranks = static_cast<int>(section.expert);
  plan.expert_halves = section.expert_halves;
  plan.router_losses = {
      training.router_aux_loss == "sequence"      ? nn::Balance::kRows
      : training.router_aux_loss == "micro_batch" ? nn::Balance::kBatch
                                                  : nn::Balance::kNone,
      training.router_aux_loss_coef,
      training.router_z_loss_coef};
  plan.expert_capacity_factor = training.expert_capacity_factor.value_or(0);
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
  if (config.parallel.pipeline > 1) {  // otherwise the pipeline keys are ignored
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
