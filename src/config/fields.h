// One visitor of every field of the configuration. It drives files, flags, --help, printing and the
// JSON schema.
//
// visit_fields(section, visitor) calls, for each field in order,
//   visitor(Field{name, help, choices}, value)           where value is a scalar, an optional or a
//   list, and visitor.section(Field{name, help, {}}, section)      where it is a struct with fields
//   of its own.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "config/config.h"

namespace lockstep::config {

/// What is known of a field beside its value.
struct Field {
  std::string_view name;
  std::string_view help;
  /// The words that a string field may be; empty: any.
  std::span<const std::string_view> choices = {};
};

namespace choices {

inline constexpr std::string_view kDataFormats[] = {"auto", "text", "jsonl", "csv", "tsv"};
inline constexpr std::string_view kTextDocuments[] = {"file", "line", "paragraph"};
inline constexpr std::string_view kLongDocuments[] = {"split", "truncate"};
inline constexpr std::string_view kInvalidUtf8[] = {"error", "replace"};
inline constexpr std::string_view kPrompts[] = {"none", "alpaca", "pairs"};
inline constexpr std::string_view kRampShapes[] = {"linear", "cosine", "1-sqrt"};
inline constexpr std::string_view kPlateauModes[] = {"min", "max"};
inline constexpr std::string_view kThresholdModes[] = {"rel", "abs"};
inline constexpr std::string_view kReduceTypes[] = {"auto", "float32", "bfloat16", "float16"};
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
inline constexpr std::string_view kOffloadDevices[] = {"none", "cpu", "nvme"};
inline constexpr std::string_view kContextAttentions[] = {"ring", "ulysses"};
inline constexpr std::string_view kRecomputes[] = {"none", "selective", "full"};
inline constexpr std::string_view kProgressForms[] = {"auto", "line", "plain", "none"};
}  // namespace choices

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, ModelSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"path",
       "A Hugging Face folder, a config.json, or a Hub name that is in the local Hugging Face "
       "cache"},
      section.path);
  visitor({"preset", "The name of a built-in model description (random weights)"}, section.preset);
  visitor(
      {"resize_embeddings", "Grow the embedding where the tokenizer has more entries than it"},
      section.resize_embeddings);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, TokenizerSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"path",
       "A folder with tokenizer.json or vocab.json and merges.txt, or such a file; empty: the "
       "model's folder"},
      section.path);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, DataSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"train",
       "Files to train on: paths or globs; text, JSON lines, CSV or TSV, also gzip and zstd of "
       "each"},
      section.train);
  visitor(
      {"validation", "Files to evaluate on; empty: see validation_fraction"}, section.validation);
  visitor({"test", "Files for the closing test (do_predict)"}, section.test);
  visitor(
      {"validation_fraction",
       "Share of the training documents held out for evaluation where data.validation is empty, 0 "
       "to 1"},
      section.validation_fraction);
  visitor(
      {"test_fraction",
       "Share of the training documents held out for the closing test where data.test is empty, 0 "
       "to 1"},
      section.test_fraction);
  visitor({"split_seed", "Which documents are held out"}, section.split_seed);
  visitor(
      {"sequence_length", "Tokens in a training sequence; 0: what the model allows, at most 1024"},
      section.sequence_length);
  visitor(
      {"format", "How the files are read; auto goes by their names", choices::kDataFormats},
      section.format);
  visitor({"text_field", "The field or column that holds the text"}, section.text_field);
  visitor(
      {"prompt",
       "none: the text field is the document; alpaca: instruction, input and output, the prompt's "
       "loss masked; pairs: instruction and output alone",
       choices::kPrompts},
      section.prompt);
  visitor(
      {"instruction_field", "The field of the instruction, for prompt=alpaca and pairs"},
      section.instruction_field);
  visitor(
      {"input_field", "The field of the optional input, for prompt=alpaca"}, section.input_field);
  visitor(
      {"output_field", "The field of the answer, for prompt=alpaca and pairs"},
      section.output_field);
  visitor(
      {"packing",
       "Join documents and cut them into full sequences; false: one document a sequence, cut or "
       "padded"},
      section.packing);
  visitor(
      {"append_eos", "Put the end-of-text token after each document, where the tokenizer has one"},
      section.append_eos);
  visitor(
      {"text_documents",
       "What a document of plain text is: the whole file, a line, or a paragraph between blank "
       "lines",
       choices::kTextDocuments},
      section.text_documents);
  visitor(
      {"long_documents",
       "For packing=false, a document longer than a sequence: split over several, or truncate",
       choices::kLongDocuments},
      section.long_documents);
  visitor(
      {"invalid_utf8",
       "Bytes that are not UTF-8: error, or replace by U+FFFD",
       choices::kInvalidUtf8},
      section.invalid_utf8);
  visitor(
      {"cache_dir",
       "Folder of the tokenized data; empty: ~/.cache/lockstep/data (or below XDG_CACHE_HOME)"},
      section.cache_dir);
}

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
      {"label_smoothing_factor", "Share of the target that is spread over the vocabulary"},
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
       "true: plain lines in the place of the progress line; null: as the terminal allows"},
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
       "Whether the best metric is the largest; null: unless its name ends in loss"},
      section.greater_is_better);
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
       "Look for parameters that a step did not use, in the place of naming them in an error"},
      section.ddp_find_unused_parameters);
  visitor(
      {"ddp_bucket_cap_mb", "Mebibytes of gradients that are reduced together"},
      section.ddp_bucket_cap_mb);
  visitor({"use_cpu", "Train on the CPU even where GPUs are visible"}, section.use_cpu);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, OffloadSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"device",
       "none: on the device; cpu: in host memory; nvme: in files below path",
       choices::kOffloadDevices},
      section.device);
  visitor({"path", "Folder of the files, for device=nvme"}, section.path);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, OptimizerOffloadSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"device",
       "none: on the device; cpu: in host memory; nvme: in files below path",
       choices::kOffloadDevices},
      section.device);
  visitor({"path", "Folder of the files, for device=nvme"}, section.path);
  visitor(
      {"ratio", "Share of the state that is offloaded, 0 to 1; the rest stays on the device"},
      section.ratio);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, ParallelSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"data", "Data-parallel ranks; null: all ranks divided by the other sizes"}, section.data);
  visitor({"tensor", "Ranks that share each layer"}, section.tensor);
  visitor({"pipeline", "Stages of the pipeline"}, section.pipeline);
  visitor({"context", "Ranks that share each sequence"}, section.context);
  visitor(
      {"context_attention",
       "How ranks that share sequences attend: ring, keys and values pass round; ulysses, the "
       "ranks trade parts of the sequence for heads, which must divide",
       choices::kContextAttentions},
      section.context_attention);
  visitor(
      {"sequence_parallel", "Share the work between tensor-parallel regions by sequence too"},
      section.sequence_parallel);
  visitor(
      {"zero_stage",
       "What data-parallel ranks share: 0 nothing, 1 optimizer, 2 and gradients, 3 and parameters"},
      section.zero_stage);
  visitor(
      {"shard_ranks",
       "Neighbouring data-parallel ranks that share a state of which others hold replicas; -1: "
       "those of one machine; 0: all share one"},
      section.shard_ranks);
  visitor(
      {"zero_in_pipeline",
       "Allow zero_stage 2 and 3 in a pipeline, where every micro-batch pays for their "
       "communication"},
      section.zero_in_pipeline);
  visitor(
      {"schedule",
       "Pipeline schedule: naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, or a file of "
       "actions"},
      section.schedule);
  visitor(
      {"virtual_stages", "Pieces of the model that each stage holds, for schedule=interleaved"},
      section.virtual_stages);
  visitor(
      {"split",
       "Stages by even cost (auto), by parameters, or by hand: layers of each stage as 3,4,4,1"},
      section.split);
  visitor(
      {"prefetch_units", "Units gathered ahead of use in zero_stage=3"}, section.prefetch_units);
  visitor(
      {"prefetch_elements",
       "Gather units ahead until they have so many elements, in the place of prefetch_units; null: "
       "not"},
      section.prefetch_elements);
  visitor(
      {"persistence_threshold",
       "In zero_stage=3, parameters of fewer elements than this are not dropped after use"},
      section.persistence_threshold);
  visitor(
      {"recompute",
       "Activations recomputed in the backward pass: selective, the MLP's; full, all of a layer",
       choices::kRecomputes},
      section.recompute);
  visitor(
      {"recompute_every", "Every so-manieth layer recomputes; 1: all"}, section.recompute_every);
  visitor.section({"offload_optimizer", "Where optimizer state lives"}, section.offload_optimizer);
  visitor.section({"offload_param", "Where parameters live"}, section.offload_param);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, LossScaleSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor({"fixed", "The factor, for ever; 0: it follows overflows"}, section.fixed);
  visitor({"initial_power", "The factor begins at 2 to this"}, section.initial_power);
  visitor({"window", "Steps without an overflow before the factor doubles"}, section.window);
  visitor({"hysteresis", "Overflows before the factor halves"}, section.hysteresis);
  visitor(
      {"consecutive_hysteresis",
       "Good steps make up for overflows at once, not only when the factor doubles"},
      section.consecutive_hysteresis);
  visitor({"minimum", "The least that the factor falls to"}, section.minimum);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, PrecisionSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"stochastic_rounding",
       "Keep no float32 masters of bfloat16 weights: updates are rounded up or down at random"},
      section.stochastic_rounding);
  visitor(
      {"reduce_type",
       "Type in which gradients are sent and summed over ranks; auto: that in which they are "
       "accumulated",
       choices::kReduceTypes},
      section.reduce_type);
  visitor.section(
      {"loss_scale", "The factor that keeps float16 gradients from vanishing"}, section.loss_scale);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, CheckpointSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor({"verify", "Compare every chunk's hash when a checkpoint is loaded"}, section.verify);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, MonitorSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"progress",
       "auto: one live line on a terminal, plain lines elsewhere; line, plain or none to choose",
       choices::kProgressForms},
      section.progress);
  visitor(
      {"peak_tflops",
       "Peak of one device in matrix products, TFLOP/s, for the share of the peak; null: measured"},
      section.peak_tflops);
  visitor(
      {"log_memory",
       "Tell the memory of the fullest rank by kind, at each phase, with every logged step"},
      section.log_memory);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, Config>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor.section({"model", "The model"}, section.model);
  visitor.section({"tokenizer", "The tokenizer"}, section.tokenizer);
  visitor.section({"data", "The data"}, section.data);
  visitor.section({"training", "Hugging Face's TrainingArguments"}, section.training);
  visitor.section({"parallel", "How ranks share the work"}, section.parallel);
  visitor.section(
      {"precision", "Numbers: what TrainingArguments have no name for"}, section.precision);
  visitor.section({"checkpoint", "Checkpoints"}, section.checkpoint);
  visitor.section({"monitor", "What is shown"}, section.monitor);
}

}  // namespace lockstep::config
