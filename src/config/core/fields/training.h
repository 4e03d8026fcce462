// The fields of training, whose names are Hugging Face's.
#pragma once

#include <string_view>
#include <type_traits>

#include "config/core/config.h"
#include "config/core/fields/field.h"

namespace lockstep::config {

namespace choices {

inline constexpr std::string_view kRampShapes[] = {"linear", "cosine", "1-sqrt"};
inline constexpr std::string_view kPlateauModes[] = {"min", "max"};
inline constexpr std::string_view kThresholdModes[] = {"rel", "abs"};
inline constexpr std::string_view kOptimizers[] = {
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_bnb_8bit",
    "adamw_8bit",
    "paged_adamw_8bit",
    "lion_32bit",
    "sgd",
    "adafactor"};
inline constexpr std::string_view kSchedules[] = {
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
    "cosine_with_min_lr",
    "warmup_stable_decay",
    "reduce_lr_on_plateau"};
inline constexpr std::string_view kStrategies[] = {"no", "steps", "epoch"};
inline constexpr std::string_view kLogLevels[] = {
    "debug", "info", "warning", "error", "critical", "passive"};
inline constexpr std::string_view kSaveStrategies[] = {"no", "steps", "epoch", "best"};
inline constexpr std::string_view kSamplingStrategies[] = {
    "random", "sequential", "group_by_length"};
inline constexpr std::string_view kBackends[] = {"", "nccl", "gloo"};

}  // namespace choices

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, SchedulerArguments>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"num_cycles", "cosine: waves, default 0.5; cosine_with_restarts: hard restarts, default 1"},
      section.num_cycles);
  visitor({"lr_end", "polynomial: the last learning rate, default 1e-7"}, section.lr_end);
  visitor({"power", "polynomial: the exponent, default 1"}, section.power);
  visitor({"timescale", "inverse_sqrt: steps, default the warm-up or 10000"}, section.timescale);
  visitor(
      {"min_lr", "cosine_with_min_lr and reduce_lr_on_plateau: the lowest learning rate"},
      section.min_lr);
  visitor(
      {"min_lr_rate", "cosine_with_min_lr: the lowest learning rate as a share of learning_rate"},
      section.min_lr_rate);
  visitor(
      {"num_decay_steps", "warmup_stable_decay: steps of the last phase (required there)"},
      section.num_decay_steps);
  visitor(
      {"num_stable_steps", "warmup_stable_decay: steps of the middle phase, default the rest"},
      section.num_stable_steps);
  visitor(
      {"warmup_type",
       "warmup_stable_decay: shape of the warm-up, default linear",
       choices::kRampShapes},
      section.warmup_type);
  visitor(
      {"decay_type",
       "warmup_stable_decay: shape of the decay, default cosine",
       choices::kRampShapes},
      section.decay_type);
  visitor(
      {"min_lr_ratio",
       "warmup_stable_decay: the lowest learning rate as a share of learning_rate, default 0"},
      section.min_lr_ratio);
  visitor(
      {"mode",
       "reduce_lr_on_plateau: whether the metric should fall (min, the default) or rise (max)",
       choices::kPlateauModes},
      section.mode);
  visitor(
      {"factor", "reduce_lr_on_plateau: the learning rate is multiplied by this, default 0.1"},
      section.factor);
  visitor(
      {"patience",
       "reduce_lr_on_plateau: evaluations without improvement before it is, default 10"},
      section.patience);
  visitor(
      {"threshold", "reduce_lr_on_plateau: the least change that is an improvement, default 1e-4"},
      section.threshold);
  visitor(
      {"threshold_mode",
       "reduce_lr_on_plateau: rel (the default) or abs",
       choices::kThresholdModes},
      section.threshold_mode);
  visitor(
      {"cooldown", "reduce_lr_on_plateau: evaluations to wait after a reduction, default 0"},
      section.cooldown);
  visitor(
      {"eps",
       "reduce_lr_on_plateau: smaller changes of the learning rate are not made, default 1e-8"},
      section.eps);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, TrainingSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor({"output_dir", "Folder of everything that the run writes"}, section.output_dir);
  visitor({"do_eval", "Evaluate when training ends"}, section.do_eval);
  visitor({"do_predict", "Evaluate on data.test when training ends"}, section.do_predict);
  visitor(
      {"max_steps", "Steps to train; positive: num_train_epochs does not count"},
      section.max_steps);
  visitor(
      {"num_train_epochs", "Passes over the training data; may be a fraction"},
      section.num_train_epochs);
  visitor(
      {"seed",
       "Seed of the initial weights, of dropout and, without data_seed, of the order of the data"},
      section.seed);
  visitor({"data_seed", "Seed of the order of the data; null: seed"}, section.data_seed);
  visitor(
      {"full_determinism", "Use deterministic kernels alone, on GPUs too"},
      section.full_determinism);
  visitor(
      {"resume_from_checkpoint",
       "Folder of a checkpoint, or true: the latest checkpoint-N in output_dir"},
      section.resume_from_checkpoint);
  visitor(
      {"ignore_data_skip", "After a resume, read the data from their beginning"},
      section.ignore_data_skip);
  visitor(
      {"per_device_train_batch_size", "Sequences in a micro-batch of one data-parallel rank"},
      section.per_device_train_batch_size);
  visitor(
      {"per_device_eval_batch_size", "The same, in evaluation"},
      section.per_device_eval_batch_size);
  visitor(
      {"gradient_accumulation_steps", "Micro-batches of a rank in a step"},
      section.gradient_accumulation_steps);
  visitor(
      {"auto_find_batch_size", "Halve the micro-batch when memory runs out"},
      section.auto_find_batch_size);
  visitor(
      {"average_tokens_across_devices", "Divide the loss by the target tokens of all ranks"},
      section.average_tokens_across_devices);
  visitor(
      {"learning_rate", "The highest learning rate; the schedule multiplies it"},
      section.learning_rate);
  visitor(
      {"weight_decay", "Decoupled weight decay; biases and norms do not decay"},
      section.weight_decay);
  visitor({"adam_beta1", "Decay of the first moment"}, section.adam_beta1);
  visitor({"adam_beta2", "Decay of the second moment"}, section.adam_beta2);
  visitor({"adam_epsilon", "Added to the root of the second moment"}, section.adam_epsilon);
  visitor(
      {"max_grad_norm", "Largest norm of all gradients together; 0: no clipping"},
      section.max_grad_norm);
  visitor({"optim", "The optimizer", choices::kOptimizers}, section.optim);
  visitor(
      {"label_smoothing_factor",
       "Share of the target that is spread over the vocabulary, or over the labels"},
      section.label_smoothing_factor);
  visitor(
      {"neftune_noise_alpha", "Scale of NEFTune noise on the embeddings"},
      section.neftune_noise_alpha);
  visitor(
      {"lr_scheduler_type", "How the learning rate changes over the steps", choices::kSchedules},
      section.lr_scheduler_type);
  visitor.section(
      {"lr_scheduler_kwargs", "Arguments of the schedule"}, section.lr_scheduler_kwargs);
  visitor(
      {"warmup_steps", "Steps of warm-up; between 0 and 1: that share of all steps, rounded up"},
      section.warmup_steps);
  visitor(
      {"bf16", "bfloat16 weights and activations, float32 master weights and moments"},
      section.bf16);
  visitor({"fp16", "float16 weights and activations with dynamic loss scaling"}, section.fp16);
  visitor({"bf16_full_eval", "Evaluate in bfloat16"}, section.bf16_full_eval);
  visitor({"fp16_full_eval", "Evaluate in float16"}, section.fp16_full_eval);
  visitor(
      {"tf32", "TF32 in float32 matrix products on GPUs; null: as libtorch has it (off)"},
      section.tf32);
  visitor(
      {"gradient_checkpointing",
       "Recompute activations in the backward pass: the same as parallel.recompute=full"},
      section.gradient_checkpointing);
  visitor(
      {"logging_strategy", "When a line of metrics is written", choices::kStrategies},
      section.logging_strategy);
  visitor(
      {"logging_steps", "Steps between two lines; below 1: a share of all steps"},
      section.logging_steps);
  visitor(
      {"logging_first_step", "Write a line after the first step too"}, section.logging_first_step);
  visitor(
      {"log_level", "What is told on the main rank; passive is info", choices::kLogLevels},
      section.log_level);
  visitor(
      {"log_level_replica", "What is told on the other ranks", choices::kLogLevels},
      section.log_level_replica);
  visitor(
      {"disable_tqdm",
       "true: plain lines instead of the progress line; null: as the terminal allows"},
      section.disable_tqdm);
  visitor({"report_to", "Where metrics go beside metrics.jsonl"}, section.report_to);
  visitor({"run_name", "A name of the run for the trackers of report_to"}, section.run_name);
  visitor({"project", "The project that W&B puts the run into"}, section.project);
  visitor(
      {"logging_dir", "Where TensorBoard's file goes; null: output_dir/runs/<time>_<host>"},
      section.logging_dir);
  visitor(
      {"eval_strategy", "When the model is evaluated during training", choices::kStrategies},
      section.eval_strategy);
  visitor(
      {"eval_steps",
       "Steps between two evaluations; below 1: a share of all steps; null: logging_steps"},
      section.eval_steps);
  visitor(
      {"eval_delay", "Steps or epochs, by eval_strategy, before the first evaluation"},
      section.eval_delay);
  visitor({"eval_on_start", "Evaluate before the first step too"}, section.eval_on_start);
  visitor(
      {"save_strategy", "When a checkpoint is written", choices::kSaveStrategies},
      section.save_strategy);
  visitor(
      {"save_steps", "Steps between two checkpoints; below 1: a share of all steps"},
      section.save_steps);
  visitor({"save_total_limit", "Checkpoints to keep; null: all"}, section.save_total_limit);
  visitor(
      {"save_only_model", "Save no optimizer state: such a checkpoint cannot be resumed"},
      section.save_only_model);
  visitor(
      {"load_best_model_at_end", "Load the best checkpoint when training ends"},
      section.load_best_model_at_end);
  visitor(
      {"metric_for_best_model", "The metric that tells which checkpoint is best; null: loss"},
      section.metric_for_best_model);
  visitor(
      {"greater_is_better",
       "Whether the best metric is the largest; null: as the metric is (not of losses and errors)"},
      section.greater_is_better);
  visitor(
      {"early_stopping_patience",
       "Stop after so many evaluations, one after another, that are no better; null: never"},
      section.early_stopping_patience);
  visitor(
      {"early_stopping_threshold", "The change of the metric that is better, for early stopping"},
      section.early_stopping_threshold);
  visitor(
      {"dataloader_drop_last", "Leave out the last batch of an epoch where it is not full"},
      section.dataloader_drop_last);
  visitor(
      {"dataloader_num_workers", "Threads that read ahead; 0: one"},
      section.dataloader_num_workers);
  visitor(
      {"dataloader_prefetch_factor", "Steps to read ahead; null: 2"},
      section.dataloader_prefetch_factor);
  visitor(
      {"train_sampling_strategy", "The order of the training data", choices::kSamplingStrategies},
      section.train_sampling_strategy);
  visitor(
      {"ddp_backend",
       "What carries the messages of ranks; empty: nccl on GPUs; on CPUs shared memory within a "
       "machine and gloo between machines",
       choices::kBackends},
      section.ddp_backend);
  visitor(
      {"ddp_timeout", "Seconds before an operation between ranks is given up"},
      section.ddp_timeout);
  visitor(
      {"ddp_find_unused_parameters",
       "Look for parameters that a step did not use, instead of naming them in an error"},
      section.ddp_find_unused_parameters);
  visitor(
      {"ddp_bucket_cap_mb", "Mebibytes of gradients that are reduced together"},
      section.ddp_bucket_cap_mb);
  visitor({"use_cpu", "Train on the CPU even where GPUs are visible"}, section.use_cpu);
}

}  // namespace lockstep::config
