#include "config/deepspeed.h"

namespace lockstep::config {
namespace {

constexpr auto kMapped = DeepspeedKey::Answer::kMapped;
constexpr auto kNoEffect = DeepspeedKey::Answer::kNoEffect;
constexpr auto kRefuseUnless = DeepspeedKey::Answer::kRefuseUnless;

constexpr std::string_view kOurs = "the engine chooses buffers, buckets and overlap itself";
constexpr std::string_view kOutput =
    "metrics, timing and memory are told in metrics.jsonl and the progress line";
constexpr std::string_view kFolder =
    "a checkpoint is one model folder that any number of ranks reads";
constexpr std::string_view kInference = "it is of DeepSpeed's inference engine";
constexpr std::string_view kRemoved = "DeepSpeed 0.19 has removed it";
constexpr std::string_view kNotYet = "it is not supported yet";
constexpr std::string_view kSum =
    "the loss is divided by the step's target tokens before the backward pass: sums over ranks "
    "need "
    "no scaling before or after";
constexpr std::string_view kAio =
    "files are read and written a shard at a time, through io_uring where it is allowed";
constexpr std::string_view kMasters =
    "weights without float32 masters are precision.stochastic_rounding";
constexpr std::string_view kMoments =
    "moments are float32; in 8 bits they are training.optim=adamw_8bit";
constexpr std::string_view kHalfMasters =
    "updates of float16 weights would be lost: masters are float32";
constexpr std::string_view kOneUnit =
    "in stages 1 and 2 parameters are gathered in the buffers that gradients are reduced in "
    "(reduce_bucket_size), in stage 3 a unit at a time";
constexpr std::string_view kHostBuffers =
    "host memory is taken a shard at a time, pinned where there is a GPU, and copied beside the "
    "computation";
constexpr std::string_view kLive =
    "a unit is dropped after its use; parallel.prefetch_units and parallel.prefetch_elements say "
    "how many are gathered ahead";

constexpr DeepspeedKey kKeys[] = {
    // Batch
    {"train_batch_size", kMapped, "", ""},
    {"train_micro_batch_size_per_gpu", kMapped, "", ""},
    {"gradient_accumulation_steps", kMapped, "", ""},
    {"gradient_clipping", kMapped, "", ""},
    {"dataloader_drop_last", kMapped, "", ""},
    {"managed_gradient_accumulation", kRefuseUnless, "true", "the trainer accumulates by itself"},

    // Optimizer and schedule
    {"optimizer.type", kMapped, "", ""},
    {"optimizer.legacy_fusion", kNoEffect, "false", kOurs},
    {"optimizer.params.lr", kMapped, "", ""},
    {"optimizer.params.betas", kMapped, "", ""},
    {"optimizer.params.eps", kMapped, "", ""},
    {"optimizer.params.weight_decay", kMapped, "", ""},
    {"optimizer.params.adam_w_mode", kMapped, "", ""},
    {"optimizer.params.torch_adam", kNoEffect, "*", ""},
    {"optimizer.params.fused", kNoEffect, "*", ""},
    {"optimizer.params.bias_correction", kRefuseUnless, "true", "AdamW corrects its moments' bias"},
    {"optimizer.params.amsgrad", kRefuseUnless, "false", kNotYet},
    {"optimizer.params.max_grad_norm",
     kRefuseUnless,
     "0|0.0|null",
     "clipping is the top-level gradient_clipping"},
    {"scheduler.type", kMapped, "", ""},
    {"scheduler.params", kMapped, "", ""},

    // Precision
    {"bf16.enabled", kMapped, "", ""},
    {"bf16.immediate_grad_update", kNoEffect, "*", ""},
    {"bf16.check_grad_overflow", kNoEffect, "*", ""},
    {"bf16.bf16_master_weights_and_grads", kRefuseUnless, "false", kMasters},
    {"bf16.bf16_optimizer_states", kRefuseUnless, "false", kMoments},
    {"bf16.auto_cast", kNoEffect, "false", "weights and activations are bfloat16"},
    {"bf16.loss_scale", kNoEffect, "*", ""},
    {"bf16.initial_scale_power", kNoEffect, "*", ""},
    {"bf16.loss_scale_window", kNoEffect, "*", ""},
    {"bf16.hysteresis", kNoEffect, "*", ""},
    {"bf16.min_loss_scale", kNoEffect, "*", ""},
    {"fp16.enabled", kMapped, "", ""},
    {"fp16.auto_cast", kNoEffect, "*", ""},
    {"fp16.loss_scale", kMapped, "", ""},
    {"fp16.initial_scale_power", kMapped, "", ""},
    {"fp16.loss_scale_window", kMapped, "", ""},
    {"fp16.hysteresis", kMapped, "", ""},
    {"fp16.consecutive_hysteresis", kMapped, "", ""},
    {"fp16.min_loss_scale", kMapped, "", ""},
    {"fp16.fp16_master_weights_and_grads", kRefuseUnless, "false", kHalfMasters},
    {"fp16.opt_level", kNoEffect, "*", ""},
    {"torch_autocast.enabled",
     kRefuseUnless,
     "false",
     "weights and activations have one type; set bf16.enabled"},
    {"torch_autocast", kNoEffect, "*", ""},
    {"data_types.grad_accum_dtype",
     kRefuseUnless,
     "fp32|float32|null",
     "gradients are accumulated in float32"},
    {"data_types", kNoEffect, "*", ""},
    {"communication_data_type", kMapped, "", ""},
    {"seq_parallel_communication_data_type", kNoEffect, "*", ""},

    // ZeRO
    {"zero_optimization.stage", kMapped, "", ""},
    {"zero_optimization.offload_optimizer.device", kMapped, "", ""},
    {"zero_optimization.offload_optimizer.nvme_path", kMapped, "", ""},
    {"zero_optimization.offload_optimizer.ratio", kMapped, "", ""},
    {"zero_optimization.offload_optimizer.super_offload", kRefuseUnless, "false", kNotYet},
    {"zero_optimization.offload_optimizer", kNoEffect, "", kHostBuffers},
    {"zero_optimization.offload_param.device", kMapped, "", ""},
    {"zero_optimization.offload_param.nvme_path", kMapped, "", ""},
    {"zero_optimization.offload_param", kNoEffect, "", kHostBuffers},
    {"zero_optimization.cpu_offload", kMapped, "", ""},
    {"zero_optimization.cpu_offload_params", kMapped, "", ""},
    {"zero_optimization.cpu_offload_param", kMapped, "", ""},
    {"zero_optimization.cpu_offload_use_pin_memory", kNoEffect, "", kHostBuffers},
    {"zero_optimization.contiguous_gradients", kNoEffect, "", kOurs},
    {"zero_optimization.reduce_scatter", kNoEffect, "", kOurs},
    {"zero_optimization.reduce_bucket_size", kMapped, "", ""},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kNoEffect, "", kOurs},
    {"zero_optimization.allgather_partitions", kNoEffect, "", kOurs},
    {"zero_optimization.allgather_bucket_size", kNoEffect, "", kOneUnit},
    {"zero_optimization.overlap_comm", kNoEffect, "", kOurs},
    {"zero_optimization.sub_group_size", kNoEffect, "", kOurs},
    {"zero_optimization.stage3_prefetch_bucket_size", kMapped, "", ""},
    {"zero_optimization.stage3_param_persistence_threshold", kMapped, "", ""},
    {"zero_optimization.stage3_model_persistence_threshold", kNoEffect, "", kOurs},
    {"zero_optimization.stage3_max_live_parameters", kNoEffect, "", kLive},
    {"zero_optimization.stage3_max_reuse_distance", kNoEffect, "", kLive},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kNoEffect, "*", kFolder},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kNoEffect, "*", kFolder},
    {"zero_optimization.stage3_module_granularity_threshold", kNoEffect, "", kOurs},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kNoEffect, "", kOurs},
    {"zero_optimization.stage3_allgather_sequential", kNoEffect, "", kOurs},
    // The same without their prefix, as DeepSpeed takes them.
    {"zero_optimization.prefetch_bucket_size", kMapped, "", ""},
    {"zero_optimization.param_persistence_threshold", kMapped, "", ""},
    {"zero_optimization.model_persistence_threshold", kNoEffect, "", kOurs},
    {"zero_optimization.max_live_parameters", kNoEffect, "", kLive},
    {"zero_optimization.max_reuse_distance", kNoEffect, "", kLive},
    {"zero_optimization.gather_16bit_weights_on_model_save", kNoEffect, "*", kFolder},
    {"zero_optimization.module_granularity_threshold", kNoEffect, "", kOurs},
    {"zero_optimization.use_all_reduce_for_fetch_params", kNoEffect, "", kOurs},
    {"zero_optimization.allgather_sequential", kNoEffect, "", kOurs},
    {"zero_optimization.load_from_fp32_weights", kNoEffect, "*", kFolder},
    {"zero_optimization.elastic_checkpoint", kNoEffect, "*", kFolder},
    {"zero_optimization.pipeline_loading_checkpoint", kNoEffect, "*", kFolder},
    {"zero_optimization.compute_grad_norm", kNoEffect, "", "the norm is always told"},
    {"zero_optimization.ignore_unused_parameters",
     kNoEffect,
     "*",
     "training.ddp_find_unused_parameters decides"},
    {"zero_optimization.legacy_stage1", kNoEffect, "", kOurs},
    {"zero_optimization.round_robin_gradients", kNoEffect, "", kOurs},
    {"zero_optimization.parameter_alignment", kNoEffect, "", kOurs},
    {"zero_optimization.memory_efficient_linear", kNoEffect, "*", kOurs},
    {"zero_optimization.override_module_apply", kNoEffect, "*", kOurs},
    {"zero_optimization.log_trace_cache_warnings", kNoEffect, "*", kOutput},
    {"zero_optimization.enable_sanity_checks", kNoEffect, "*", kOutput},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", kNoEffect, "*", kOurs},
    {"zero_optimization.leaf_module", kNoEffect, "", "the units are the model's blocks"},
    {"zero_optimization.zero_hpz_partition_size", kMapped, "", ""},
    {"zero_optimization.zero_quantized_weights", kRefuseUnless, "false", kNotYet},
    {"zero_optimization.zero_quantized_nontrainable_weights", kRefuseUnless, "false", kNotYet},
    {"zero_optimization.zero_quantized_gradients", kRefuseUnless, "false", kNotYet},
    {"zero_optimization.zenflow", kRefuseUnless, "null", kNotYet},
    {"zero_optimization.mics_shard_size", kRefuseUnless, "-1", kRemoved},
    {"zero_optimization.mics_hierarchical_params_gather", kNoEffect, "*", kRemoved},
    {"zero_optimization.zeropp_loco_param", kRefuseUnless, "null", kRemoved},
    {"zero_allow_untested_optimizer", kNoEffect, "*", kOurs},
    {"zero_force_ds_cpu_optimizer", kNoEffect, "*", kOurs},

    // Parallelism
    {"tensor_parallel.autotp_size", kMapped, "", ""},
    {"tensor_parallel", kNoEffect, "", "the split of every layer is known"},
    {"sequence_parallel_size", kMapped, "", ""},
    {"pipeline.stages", kRefuseUnless, "auto", "use parallel.pipeline"},
    {"pipeline", kNoEffect, "*", "use parallel.pipeline, parallel.split and parallel.schedule"},
    {"use_data_before_expert_parallelism", kNoEffect, "*", "there are no experts yet"},
    {"activation_checkpointing",
     kNoEffect,
     "false|null",
     "what is recomputed is parallel.recompute's to say"},
    {"gradient_allreduce_op", kRefuseUnless, "mean", "losses are divided by all target tokens"},
    {"prescale_gradients", kNoEffect, "false", kSum},
    {"gradient_predivide_factor", kNoEffect, "1|1.0", kSum},
    {"disable_allgather", kNoEffect, "false", kOurs},

    // Output and measuring
    {"steps_per_print", kNoEffect, "*", kOutput},
    {"wall_clock_breakdown", kNoEffect, "*", kOutput},
    {"memory_breakdown", kNoEffect, "*", kOutput},
    {"dump_state", kNoEffect, "*", kOutput},
    {"log_level", kNoEffect, "*", kOutput},
    {"timers", kNoEffect, "*", kOutput},
    {"flops_profiler.enabled", kNoEffect, "false", kOutput},
    {"flops_profiler", kNoEffect, "*", kOutput},
    {"comms_logger.enabled", kNoEffect, "false", kOutput},
    {"comms_logger", kNoEffect, "*", kOutput},
    {"tensorboard.enabled", kNoEffect, "false", kOutput},
    {"tensorboard", kNoEffect, "*", kOutput},
    {"wandb.enabled", kNoEffect, "false", kOutput},
    {"wandb", kNoEffect, "*", kOutput},
    {"csv_monitor.enabled", kNoEffect, "false", kOutput},
    {"csv_monitor", kNoEffect, "*", kOutput},
    {"comet.enabled", kNoEffect, "false", kOutput},
    {"comet", kNoEffect, "*", kOutput},
    {"monitor_config", kNoEffect, "*", kOutput},
    {"aio", kNoEffect, "*", kAio},
    {"checkpoint", kNoEffect, "*", kFolder},
    {"vocabulary_size", kNoEffect, "*", "the model's config.json has it"},
    {"compile", kNoEffect, "*", "there is no Python to compile"},
    {"autotuning.enabled", kNoEffect, "false", "`lockstep plan` searches for the quickest plan"},
    {"autotuning", kNoEffect, "*", ""},
    {"hybrid_engine.enabled", kRefuseUnless, "false", kInference},
    {"hybrid_engine", kNoEffect, "*", ""},
    {"data_efficiency.enabled", kRefuseUnless, "false", kNotYet},
    {"data_efficiency", kNoEffect, "*", ""},
    {"weight_quantization", kRefuseUnless, "null|{}", kNotYet},

    // Gone from DeepSpeed 0.19
    {"amp.enabled", kRefuseUnless, "false", kRemoved},
    {"amp", kNoEffect, "*", ""},
    {"compression_training", kRefuseUnless, "{}", kRemoved},
    {"curriculum_learning.enabled", kRefuseUnless, "false", kRemoved},
    {"curriculum_learning", kNoEffect, "*", ""},
    {"eigenvalue.enabled", kNoEffect, "false", kRemoved},
    {"eigenvalue", kNoEffect, "*", ""},
    {"elasticity.enabled", kRefuseUnless, "false", kRemoved},
    {"elasticity", kNoEffect, "*", ""},
    {"graph_harvesting", kNoEffect, "", kRemoved},
    {"nebula", kNoEffect, "", kRemoved},
    {"progressive_layer_drop.enabled", kRefuseUnless, "false", kRemoved},
    {"progressive_layer_drop", kNoEffect, "*", ""},
    {"quantize_training.enabled", kRefuseUnless, "false", kRemoved},
    {"quantize_training", kNoEffect, "*", ""},
    {"sparse_attention", kRefuseUnless, "null", kRemoved},
    {"sparse_gradients", kNoEffect, "false", kRemoved},
};

}  // namespace

std::span<const DeepspeedKey> deepspeed_keys() {
  return kKeys;
}

}  // namespace lockstep::config
