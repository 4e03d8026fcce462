// Rule table for DeepSpeed keys.
#include "config/compat/deepspeed.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;

constexpr std::string_view kOurs = "Lockstep chooses buffers, buckets and overlap itself";
constexpr std::string_view kOutput =
    "metrics, timing and memory are in metrics.jsonl and the progress line";
constexpr std::string_view kFolder =
    "a checkpoint is one model folder that any number of ranks can load";
constexpr std::string_view kInference = "only used by DeepSpeed's inference engine";
constexpr std::string_view kRemoved = "DeepSpeed 0.19 has removed it";
constexpr std::string_view kNotYet = "is not supported yet";
constexpr std::string_view kSum =
    "the loss is divided by the step's target tokens before the backward pass, so gradient sums "
    "need no scaling";
constexpr std::string_view kAio =
    "files are read and written one shard at a time, with io_uring if allowed";
constexpr std::string_view kMasters =
    "use precision.stochastic_rounding for weights without float32 master weights";
constexpr std::string_view kMoments = "moments are float32; training.optim=adamw_8bit uses 8 bits";
constexpr std::string_view kHalfMasters =
    "updates of float16 weights would be lost: master weights are float32";
constexpr std::string_view kOneUnit =
    "stages 1 and 2 gather parameters in the gradient buckets (reduce_bucket_size), stage 3 one "
    "unit at a time";
constexpr std::string_view kHostBuffers =
    "host memory is allocated per shard, pinned if a GPU is used, and copied during computation";
constexpr std::string_view kLive =
    "a unit is released after its use; parallel.prefetch_units and parallel.prefetch_elements set "
    "how many units are gathered ahead";

constexpr KeyRule kDeepspeedFileRules[] = {
    // Batch
    {"train_batch_size", kRead},
    {"train_micro_batch_size_per_gpu", kRead},
    {"gradient_accumulation_steps", kRead},
    {"gradient_clipping", kRead},
    {"dataloader_drop_last", kRead},
    {"managed_gradient_accumulation",
     kRefused,
     "true",
     "gradients are always accumulated by the trainer"},

    // Optimizer and schedule
    {"optimizer.type", kRead},
    {"optimizer.legacy_fusion", kIgnored, "false", kOurs},
    {"optimizer.params.lr", kRead},
    {"optimizer.params.betas", kRead},
    {"optimizer.params.eps", kRead},
    {"optimizer.params.weight_decay", kRead},
    {"optimizer.params.adam_w_mode", kRead},
    {"optimizer.params.torch_adam", kIgnored, "*"},
    {"optimizer.params.fused", kIgnored, "*"},
    {"optimizer.params.bias_correction", kRefused, "true", "AdamW always applies bias correction"},
    {"optimizer.params.amsgrad", kRefused, "false", kNotYet},
    {"optimizer.params.max_grad_norm",
     kRefused,
     "0|0.0|null",
     "use the top-level gradient_clipping"},
    {"scheduler.type", kRead},
    {"scheduler.params", kRead},

    // Precision
    {"bf16.enabled", kRead},
    {"bf16.immediate_grad_update", kIgnored, "*"},
    {"bf16.check_grad_overflow", kIgnored, "*"},
    {"bf16.bf16_master_weights_and_grads", kRefused, "false", kMasters},
    {"bf16.bf16_optimizer_states", kRefused, "false", kMoments},
    {"bf16.auto_cast", kIgnored, "false", "weights and activations are bfloat16"},
    {"bf16.loss_scale", kIgnored, "*"},
    {"bf16.initial_scale_power", kIgnored, "*"},
    {"bf16.loss_scale_window", kIgnored, "*"},
    {"bf16.hysteresis", kIgnored, "*"},
    {"bf16.min_loss_scale", kIgnored, "*"},
    {"fp16.enabled", kRead},
    {"fp16.auto_cast", kIgnored, "*"},
    {"fp16.loss_scale", kRead},
    {"fp16.initial_scale_power", kRead},
    {"fp16.loss_scale_window", kRead},
    {"fp16.hysteresis", kRead},
    {"fp16.consecutive_hysteresis", kRead},
    {"fp16.min_loss_scale", kRead},
    {"fp16.fp16_master_weights_and_grads", kRefused, "false", kHalfMasters},
    {"fp16.opt_level", kIgnored, "*"},
    {"torch_autocast.enabled",
     kRefused,
     "false",
     "weights and activations have the same type; set bf16.enabled"},
    {"torch_autocast", kIgnored, "*"},
    {"data_types.grad_accum_dtype",
     kRefused,
     "fp32|float32|null",
     "gradients are accumulated in float32"},
    {"data_types", kIgnored, "*"},
    {"communication_data_type", kRead},
    {"seq_parallel_communication_data_type", kIgnored, "*"},

    // ZeRO
    {"zero_optimization.stage", kRead},
    {"zero_optimization.offload_optimizer.device", kRead},
    {"zero_optimization.offload_optimizer.nvme_path", kRead},
    {"zero_optimization.offload_optimizer.ratio", kRead},
    {"zero_optimization.offload_optimizer.super_offload", kRefused, "false", kNotYet},
    {"zero_optimization.offload_optimizer", kIgnored, "", kHostBuffers},
    {"zero_optimization.offload_param.device", kRead},
    {"zero_optimization.offload_param.nvme_path", kRead},
    {"zero_optimization.offload_param", kIgnored, "", kHostBuffers},
    {"zero_optimization.cpu_offload", kRead},
    {"zero_optimization.cpu_offload_params", kRead},
    {"zero_optimization.cpu_offload_param", kRead},
    {"zero_optimization.cpu_offload_use_pin_memory", kIgnored, "", kHostBuffers},
    {"zero_optimization.contiguous_gradients", kIgnored, "", kOurs},
    {"zero_optimization.reduce_scatter", kIgnored, "", kOurs},
    {"zero_optimization.reduce_bucket_size", kRead},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kIgnored, "", kOurs},
    {"zero_optimization.allgather_partitions", kIgnored, "", kOurs},
    {"zero_optimization.allgather_bucket_size", kIgnored, "", kOneUnit},
    {"zero_optimization.overlap_comm", kIgnored, "", kOurs},
    {"zero_optimization.sub_group_size", kIgnored, "", kOurs},
    {"zero_optimization.stage3_prefetch_bucket_size", kRead},
    {"zero_optimization.stage3_param_persistence_threshold", kRead},
    {"zero_optimization.stage3_model_persistence_threshold", kIgnored, "", kOurs},
    {"zero_optimization.stage3_max_live_parameters", kIgnored, "", kLive},
    {"zero_optimization.stage3_max_reuse_distance", kIgnored, "", kLive},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kIgnored, "*", kFolder},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kIgnored, "*", kFolder},
    {"zero_optimization.stage3_module_granularity_threshold", kIgnored, "", kOurs},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kIgnored, "", kOurs},
    {"zero_optimization.stage3_allgather_sequential", kIgnored, "", kOurs},
    // Names without the prefix, which DeepSpeed also accepts.
    {"zero_optimization.prefetch_bucket_size", kRead},
    {"zero_optimization.param_persistence_threshold", kRead},
    {"zero_optimization.model_persistence_threshold", kIgnored, "", kOurs},
    {"zero_optimization.max_live_parameters", kIgnored, "", kLive},
    {"zero_optimization.max_reuse_distance", kIgnored, "", kLive},
    {"zero_optimization.gather_16bit_weights_on_model_save", kIgnored, "*", kFolder},
    {"zero_optimization.module_granularity_threshold", kIgnored, "", kOurs},
    {"zero_optimization.use_all_reduce_for_fetch_params", kIgnored, "", kOurs},
    {"zero_optimization.allgather_sequential", kIgnored, "", kOurs},
    {"zero_optimization.load_from_fp32_weights", kIgnored, "*", kFolder},
    {"zero_optimization.elastic_checkpoint", kIgnored, "*", kFolder},
    {"zero_optimization.pipeline_loading_checkpoint", kIgnored, "*", kFolder},
    {"zero_optimization.compute_grad_norm", kIgnored, "", "the gradient norm is always logged"},
    {"zero_optimization.ignore_unused_parameters",
     kIgnored,
     "*",
     "use training.ddp_find_unused_parameters"},
    {"zero_optimization.legacy_stage1", kIgnored, "", kOurs},
    {"zero_optimization.round_robin_gradients", kIgnored, "", kOurs},
    {"zero_optimization.parameter_alignment", kIgnored, "", kOurs},
    {"zero_optimization.memory_efficient_linear", kIgnored, "*", kOurs},
    {"zero_optimization.override_module_apply", kIgnored, "*", kOurs},
    {"zero_optimization.log_trace_cache_warnings", kIgnored, "*", kOutput},
    {"zero_optimization.enable_sanity_checks", kIgnored, "*", kOutput},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", kIgnored, "*", kOurs},
    {"zero_optimization.leaf_module", kIgnored, "", "units are always the model's blocks"},
    {"zero_optimization.zero_hpz_partition_size", kRead},
    {"zero_optimization.zero_quantized_weights", kRefused, "false", kNotYet},
    {"zero_optimization.zero_quantized_nontrainable_weights", kRefused, "false", kNotYet},
    {"zero_optimization.zero_quantized_gradients", kRefused, "false", kNotYet},
    {"zero_optimization.zenflow", kRefused, "null", kNotYet},
    {"zero_optimization.mics_shard_size", kRefused, "-1", kRemoved},
    {"zero_optimization.mics_hierarchical_params_gather", kIgnored, "*", kRemoved},
    {"zero_optimization.zeropp_loco_param", kRefused, "null", kRemoved},
    {"zero_allow_untested_optimizer", kIgnored, "*", kOurs},
    {"zero_force_ds_cpu_optimizer", kIgnored, "*", kOurs},

    // Parallelism
    {"tensor_parallel.autotp_size", kRead},
    {"tensor_parallel", kIgnored, "", "every layer has a known split"},
    {"sequence_parallel_size", kRead},
    {"pipeline.stages", kRefused, "auto", "use parallel.pipeline"},
    {"pipeline", kIgnored, "*", "use parallel.pipeline, parallel.split and parallel.schedule"},
    {"use_data_before_expert_parallelism", kIgnored, "*"},
    {"activation_checkpointing",
     kIgnored,
     "false|null",
     "parallel.recompute selects what is recomputed"},
    {"gradient_allreduce_op",
     kRefused,
     "mean",
     "losses are divided by the number of all target tokens"},
    {"prescale_gradients", kIgnored, "false", kSum},
    {"gradient_predivide_factor", kIgnored, "1|1.0", kSum},
    {"disable_allgather", kIgnored, "false", kOurs},

    // Output and profiling
    {"steps_per_print", kIgnored, "*", kOutput},
    {"wall_clock_breakdown", kIgnored, "*", kOutput},
    {"memory_breakdown", kIgnored, "*", kOutput},
    {"dump_state", kIgnored, "*", kOutput},
    {"log_level", kIgnored, "*", kOutput},
    {"timers", kIgnored, "*", kOutput},
    {"flops_profiler.enabled", kIgnored, "false", kOutput},
    {"flops_profiler", kIgnored, "*", kOutput},
    {"comms_logger.enabled", kIgnored, "false", kOutput},
    {"comms_logger", kIgnored, "*", kOutput},
    {"tensorboard.enabled", kIgnored, "false", kOutput},
    {"tensorboard", kIgnored, "*", kOutput},
    {"wandb.enabled", kIgnored, "false", kOutput},
    {"wandb", kIgnored, "*", kOutput},
    {"csv_monitor.enabled", kIgnored, "false", kOutput},
    {"csv_monitor", kIgnored, "*", kOutput},
    {"comet.enabled", kIgnored, "false", kOutput},
    {"comet", kIgnored, "*", kOutput},
    {"monitor_config", kIgnored, "*", kOutput},
    {"aio", kIgnored, "*", kAio},
    {"checkpoint", kIgnored, "*", kFolder},
    {"vocabulary_size", kIgnored, "*", "read from the model's config.json"},
    {"compile", kIgnored, "*", "there is no Python code to compile"},
    {"autotuning.enabled", kIgnored, "false", "`lockstep plan` searches for the fastest plan"},
    {"autotuning", kIgnored, "*"},
    {"hybrid_engine.enabled", kRefused, "false", kInference},
    {"hybrid_engine", kIgnored, "*"},
    {"data_efficiency.enabled", kRefused, "false", kNotYet},
    {"data_efficiency", kIgnored, "*"},
    {"weight_quantization", kRefused, "null|{}", kNotYet},

    // Removed from DeepSpeed 0.19
    {"amp.enabled", kRefused, "false", kRemoved},
    {"amp", kIgnored, "*"},
    {"compression_training", kRefused, "{}", kRemoved},
    {"curriculum_learning.enabled", kRefused, "false", kRemoved},
    {"curriculum_learning", kIgnored, "*"},
    {"eigenvalue.enabled", kIgnored, "false", kRemoved},
    {"eigenvalue", kIgnored, "*"},
    {"elasticity.enabled", kRefused, "false", kRemoved},
    {"elasticity", kIgnored, "*"},
    {"graph_harvesting", kIgnored, "", kRemoved},
    {"nebula", kIgnored, "", kRemoved},
    {"progressive_layer_drop.enabled", kRefused, "false", kRemoved},
    {"progressive_layer_drop", kIgnored, "*"},
    {"quantize_training.enabled", kRefused, "false", kRemoved},
    {"quantize_training", kIgnored, "*"},
    {"sparse_attention", kRefused, "null", kRemoved},
    {"sparse_gradients", kIgnored, "false", kRemoved},
};

}  // namespace

KeyRules deepspeed_rules() {
  return kDeepspeedFileRules;
}

}  // namespace lockstep::config
