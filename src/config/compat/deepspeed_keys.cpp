#include "config/compat/deepspeed.h"

namespace lockstep::config {
namespace {

constexpr auto kMappedKey = DeepspeedKey::Answer::kMapped;
constexpr auto kNoEffectKey = DeepspeedKey::Answer::kNoEffect;
constexpr auto kRefuseUnless = DeepspeedKey::Answer::kRefuseUnless;

constexpr std::string_view kOurs = "the engine chooses buffers, buckets and overlap itself";
constexpr std::string_view kOutput =
    "metrics, timing and memory are told in metrics.jsonl and the progress line";
constexpr std::string_view kFolder =
    "a checkpoint is one model folder that any number of ranks reads";
constexpr std::string_view kInference = "only used by DeepSpeed's inference engine";
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
    {"train_batch_size", kMappedKey, "", ""},
    {"train_micro_batch_size_per_gpu", kMappedKey, "", ""},
    {"gradient_accumulation_steps", kMappedKey, "", ""},
    {"gradient_clipping", kMappedKey, "", ""},
    {"dataloader_drop_last", kMappedKey, "", ""},
    {"managed_gradient_accumulation", kRefuseUnless, "true", "the trainer accumulates by itself"},

    // Optimizer and schedule
    {"optimizer.type", kMappedKey, "", ""},
    {"optimizer.legacy_fusion", kNoEffectKey, "false", kOurs},
    {"optimizer.params.lr", kMappedKey, "", ""},
    {"optimizer.params.betas", kMappedKey, "", ""},
    {"optimizer.params.eps", kMappedKey, "", ""},
    {"optimizer.params.weight_decay", kMappedKey, "", ""},
    {"optimizer.params.adam_w_mode", kMappedKey, "", ""},
    {"optimizer.params.torch_adam", kNoEffectKey, "*", ""},
    {"optimizer.params.fused", kNoEffectKey, "*", ""},
    {"optimizer.params.bias_correction", kRefuseUnless, "true", "AdamW corrects its moments' bias"},
    {"optimizer.params.amsgrad", kRefuseUnless, "false", kNotYet},
    {"optimizer.params.max_grad_norm",
     kRefuseUnless,
     "0|0.0|null",
     "clipping is the top-level gradient_clipping"},
    {"scheduler.type", kMappedKey, "", ""},
    {"scheduler.params", kMappedKey, "", ""},

    // Precision
    {"bf16.enabled", kMappedKey, "", ""},
    {"bf16.immediate_grad_update", kNoEffectKey, "*", ""},
    {"bf16.check_grad_overflow", kNoEffectKey, "*", ""},
    {"bf16.bf16_master_weights_and_grads", kRefuseUnless, "false", kMasters},
    {"bf16.bf16_optimizer_states", kRefuseUnless, "false", kMoments},
    {"bf16.auto_cast", kNoEffectKey, "false", "weights and activations are bfloat16"},
    {"bf16.loss_scale", kNoEffectKey, "*", ""},
    {"bf16.initial_scale_power", kNoEffectKey, "*", ""},
    {"bf16.loss_scale_window", kNoEffectKey, "*", ""},
    {"bf16.hysteresis", kNoEffectKey, "*", ""},
    {"bf16.min_loss_scale", kNoEffectKey, "*", ""},
    {"fp16.enabled", kMappedKey, "", ""},
    {"fp16.auto_cast", kNoEffectKey, "*", ""},
    {"fp16.loss_scale", kMappedKey, "", ""},
    {"fp16.initial_scale_power", kMappedKey, "", ""},
    {"fp16.loss_scale_window", kMappedKey, "", ""},
    {"fp16.hysteresis", kMappedKey, "", ""},
    {"fp16.consecutive_hysteresis", kMappedKey, "", ""},
    {"fp16.min_loss_scale", kMappedKey, "", ""},
    {"fp16.fp16_master_weights_and_grads", kRefuseUnless, "false", kHalfMasters},
    {"fp16.opt_level", kNoEffectKey, "*", ""},
    {"torch_autocast.enabled",
     kRefuseUnless,
     "false",
     "weights and activations have one type; set bf16.enabled"},
    {"torch_autocast", kNoEffectKey, "*", ""},
    {"data_types.grad_accum_dtype",
     kRefuseUnless,
     "fp32|float32|null",
     "gradients are accumulated in float32"},
    {"data_types", kNoEffectKey, "*", ""},
    {"communication_data_type", kMappedKey, "", ""},
    {"seq_parallel_communication_data_type", kNoEffectKey, "*", ""},

    // ZeRO
    {"zero_optimization.stage", kMappedKey, "", ""},
    {"zero_optimization.offload_optimizer.device", kMappedKey, "", ""},
    {"zero_optimization.offload_optimizer.nvme_path", kMappedKey, "", ""},
    {"zero_optimization.offload_optimizer.ratio", kMappedKey, "", ""},
    {"zero_optimization.offload_optimizer.super_offload", kRefuseUnless, "false", kNotYet},
    {"zero_optimization.offload_optimizer", kNoEffectKey, "", kHostBuffers},
    {"zero_optimization.offload_param.device", kMappedKey, "", ""},
    {"zero_optimization.offload_param.nvme_path", kMappedKey, "", ""},
    {"zero_optimization.offload_param", kNoEffectKey, "", kHostBuffers},
    {"zero_optimization.cpu_offload", kMappedKey, "", ""},
    {"zero_optimization.cpu_offload_params", kMappedKey, "", ""},
    {"zero_optimization.cpu_offload_param", kMappedKey, "", ""},
    {"zero_optimization.cpu_offload_use_pin_memory", kNoEffectKey, "", kHostBuffers},
    {"zero_optimization.contiguous_gradients", kNoEffectKey, "", kOurs},
    {"zero_optimization.reduce_scatter", kNoEffectKey, "", kOurs},
    {"zero_optimization.reduce_bucket_size", kMappedKey, "", ""},
    {"zero_optimization.use_multi_rank_bucket_allreduce", kNoEffectKey, "", kOurs},
    {"zero_optimization.allgather_partitions", kNoEffectKey, "", kOurs},
    {"zero_optimization.allgather_bucket_size", kNoEffectKey, "", kOneUnit},
    {"zero_optimization.overlap_comm", kNoEffectKey, "", kOurs},
    {"zero_optimization.sub_group_size", kNoEffectKey, "", kOurs},
    {"zero_optimization.stage3_prefetch_bucket_size", kMappedKey, "", ""},
    {"zero_optimization.stage3_param_persistence_threshold", kMappedKey, "", ""},
    {"zero_optimization.stage3_model_persistence_threshold", kNoEffectKey, "", kOurs},
    {"zero_optimization.stage3_max_live_parameters", kNoEffectKey, "", kLive},
    {"zero_optimization.stage3_max_reuse_distance", kNoEffectKey, "", kLive},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", kNoEffectKey, "*", kFolder},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kNoEffectKey, "*", kFolder},
    {"zero_optimization.stage3_module_granularity_threshold", kNoEffectKey, "", kOurs},
    {"zero_optimization.stage3_use_all_reduce_for_fetch_params", kNoEffectKey, "", kOurs},
    {"zero_optimization.stage3_allgather_sequential", kNoEffectKey, "", kOurs},
    // The same without their prefix, as DeepSpeed takes them.
    {"zero_optimization.prefetch_bucket_size", kMappedKey, "", ""},
    {"zero_optimization.param_persistence_threshold", kMappedKey, "", ""},
    {"zero_optimization.model_persistence_threshold", kNoEffectKey, "", kOurs},
    {"zero_optimization.max_live_parameters", kNoEffectKey, "", kLive},
    {"zero_optimization.max_reuse_distance", kNoEffectKey, "", kLive},
    {"zero_optimization.gather_16bit_weights_on_model_save", kNoEffectKey, "*", kFolder},
    {"zero_optimization.module_granularity_threshold", kNoEffectKey, "", kOurs},
    {"zero_optimization.use_all_reduce_for_fetch_params", kNoEffectKey, "", kOurs},
    {"zero_optimization.allgather_sequential", kNoEffectKey, "", kOurs},
    {"zero_optimization.load_from_fp32_weights", kNoEffectKey, "*", kFolder},
    {"zero_optimization.elastic_checkpoint", kNoEffectKey, "*", kFolder},
    {"zero_optimization.pipeline_loading_checkpoint", kNoEffectKey, "*", kFolder},
    {"zero_optimization.compute_grad_norm", kNoEffectKey, "", "the norm is always told"},
    {"zero_optimization.ignore_unused_parameters",
     kNoEffectKey,
     "*",
     "training.ddp_find_unused_parameters decides"},
    {"zero_optimization.legacy_stage1", kNoEffectKey, "", kOurs},
    {"zero_optimization.round_robin_gradients", kNoEffectKey, "", kOurs},
    {"zero_optimization.parameter_alignment", kNoEffectKey, "", kOurs},
    {"zero_optimization.memory_efficient_linear", kNoEffectKey, "*", kOurs},
    {"zero_optimization.override_module_apply", kNoEffectKey, "*", kOurs},
    {"zero_optimization.log_trace_cache_warnings", kNoEffectKey, "*", kOutput},
    {"zero_optimization.enable_sanity_checks", kNoEffectKey, "*", kOutput},
    {"zero_optimization.save_muon_momentum_buffer_in_memory", kNoEffectKey, "*", kOurs},
    {"zero_optimization.leaf_module", kNoEffectKey, "", "the units are the model's blocks"},
    {"zero_optimization.zero_hpz_partition_size", kMappedKey, "", ""},
    {"zero_optimization.zero_quantized_weights", kRefuseUnless, "false", kNotYet},
    {"zero_optimization.zero_quantized_nontrainable_weights", kRefuseUnless, "false", kNotYet},
    {"zero_optimization.zero_quantized_gradients", kRefuseUnless, "false", kNotYet},
    {"zero_optimization.zenflow", kRefuseUnless, "null", kNotYet},
    {"zero_optimization.mics_shard_size", kRefuseUnless, "-1", kRemoved},
    {"zero_optimization.mics_hierarchical_params_gather", kNoEffectKey, "*", kRemoved},
    {"zero_optimization.zeropp_loco_param", kRefuseUnless, "null", kRemoved},
    {"zero_allow_untested_optimizer", kNoEffectKey, "*", kOurs},
    {"zero_force_ds_cpu_optimizer", kNoEffectKey, "*", kOurs},

    // Parallelism
    {"tensor_parallel.autotp_size", kMappedKey, "", ""},
    {"tensor_parallel", kNoEffectKey, "", "the split of every layer is known"},
    {"sequence_parallel_size", kMappedKey, "", ""},
    {"pipeline.stages", kRefuseUnless, "auto", "use parallel.pipeline"},
    {"pipeline", kNoEffectKey, "*", "use parallel.pipeline, parallel.split and parallel.schedule"},
    {"use_data_before_expert_parallelism", kNoEffectKey, "*", "there are no experts yet"},
    {"activation_checkpointing",
     kNoEffectKey,
     "false|null",
     "what is recomputed is parallel.recompute's to say"},
    {"gradient_allreduce_op", kRefuseUnless, "mean", "losses are divided by all target tokens"},
    {"prescale_gradients", kNoEffectKey, "false", kSum},
    {"gradient_predivide_factor", kNoEffectKey, "1|1.0", kSum},
    {"disable_allgather", kNoEffectKey, "false", kOurs},

    // Output and measuring
    {"steps_per_print", kNoEffectKey, "*", kOutput},
    {"wall_clock_breakdown", kNoEffectKey, "*", kOutput},
    {"memory_breakdown", kNoEffectKey, "*", kOutput},
    {"dump_state", kNoEffectKey, "*", kOutput},
    {"log_level", kNoEffectKey, "*", kOutput},
    {"timers", kNoEffectKey, "*", kOutput},
    {"flops_profiler.enabled", kNoEffectKey, "false", kOutput},
    {"flops_profiler", kNoEffectKey, "*", kOutput},
    {"comms_logger.enabled", kNoEffectKey, "false", kOutput},
    {"comms_logger", kNoEffectKey, "*", kOutput},
    {"tensorboard.enabled", kNoEffectKey, "false", kOutput},
    {"tensorboard", kNoEffectKey, "*", kOutput},
    {"wandb.enabled", kNoEffectKey, "false", kOutput},
    {"wandb", kNoEffectKey, "*", kOutput},
    {"csv_monitor.enabled", kNoEffectKey, "false", kOutput},
    {"csv_monitor", kNoEffectKey, "*", kOutput},
    {"comet.enabled", kNoEffectKey, "false", kOutput},
    {"comet", kNoEffectKey, "*", kOutput},
    {"monitor_config", kNoEffectKey, "*", kOutput},
    {"aio", kNoEffectKey, "*", kAio},
    {"checkpoint", kNoEffectKey, "*", kFolder},
    {"vocabulary_size", kNoEffectKey, "*", "the model's config.json has it"},
    {"compile", kNoEffectKey, "*", "there is no Python to compile"},
    {"autotuning.enabled", kNoEffectKey, "false", "`lockstep plan` searches for the quickest plan"},
    {"autotuning", kNoEffectKey, "*", ""},
    {"hybrid_engine.enabled", kRefuseUnless, "false", kInference},
    {"hybrid_engine", kNoEffectKey, "*", ""},
    {"data_efficiency.enabled", kRefuseUnless, "false", kNotYet},
    {"data_efficiency", kNoEffectKey, "*", ""},
    {"weight_quantization", kRefuseUnless, "null|{}", kNotYet},

    // Gone from DeepSpeed 0.19
    {"amp.enabled", kRefuseUnless, "false", kRemoved},
    {"amp", kNoEffectKey, "*", ""},
    {"compression_training", kRefuseUnless, "{}", kRemoved},
    {"curriculum_learning.enabled", kRefuseUnless, "false", kRemoved},
    {"curriculum_learning", kNoEffectKey, "*", ""},
    {"eigenvalue.enabled", kNoEffectKey, "false", kRemoved},
    {"eigenvalue", kNoEffectKey, "*", ""},
    {"elasticity.enabled", kRefuseUnless, "false", kRemoved},
    {"elasticity", kNoEffectKey, "*", ""},
    {"graph_harvesting", kNoEffectKey, "", kRemoved},
    {"nebula", kNoEffectKey, "", kRemoved},
    {"progressive_layer_drop.enabled", kRefuseUnless, "false", kRemoved},
    {"progressive_layer_drop", kNoEffectKey, "*", ""},
    {"quantize_training.enabled", kRefuseUnless, "false", kRemoved},
    {"quantize_training", kNoEffectKey, "*", ""},
    {"sparse_attention", kRefuseUnless, "null", kRemoved},
    {"sparse_gradients", kNoEffectKey, "false", kRemoved},
};

}  // namespace

std::span<const DeepspeedKey> deepspeed_keys() {
  return kKeys;
}

}  // namespace lockstep::config
