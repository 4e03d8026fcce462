// The configuration of a job: plain nested structs. Field names are the names that users type, and
// the defaults are the program's. config/core/fields.h visits them; config/resolve.h fills them
// from files and the command line. The comment of a field is its help text too (a test compares the
// two).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::config {

/// Names that a user chooses, each with a number, in their order.
using NumberMap = std::vector<std::pair<std::string, double>>;

/// Which model, and where its weights come from. Exactly one of path and preset is given.
struct ModelSection {
  /// A Hugging Face folder, a config.json, or a Hub name that is in the local Hugging Face cache.
  std::string path;
  /// The name of a built-in model description (random weights).
  std::string preset;
  /// Grow the embedding where the tokenizer has more entries than it.
  bool resize_embeddings = false;
  /// Parameters that are not trained: regular expressions that are looked for in their names. They
  /// get no gradient and no optimizer state.
  std::vector<std::string> freeze;
};

/// Adapters, by PEFT's names: where any key is given the model's own weights stay as they are, and
/// low-rank factors beside its linears are trained (Hu et al., "LoRA", 2021).
struct LoraSection {
  /// A file adapter_config.json of PEFT's, over which the other keys go.
  std::string config;
  /// A folder of PEFT's to go on from: its configuration, and its adapter's values.
  std::string adapter;
  /// The rank of the factors, their inner size; null: 8.
  std::optional<int64_t> r;
  /// What the factors add is multiplied by this, divided by r; null: 8.
  std::optional<double> lora_alpha;
  /// Dropout of what the factors read, from 0 to below 1; null: 0.
  std::optional<double> lora_dropout;
  /// The linears that get factors: ends of their names (q_proj, mlp.c_fc), one regular expression
  /// of whole names, or all-linear; empty: the usual ones of the model's family.
  std::vector<std::string> target_modules;
  /// Linears that get none: ends of names, or one regular expression.
  std::vector<std::string> exclude_modules;
  /// Modules that are trained whole, as they are, and saved with the factors.
  std::vector<std::string> modules_to_save;
  /// Biases that are trained too: all, or lora_only, those of layers with factors; null: none.
  std::optional<std::string> bias;
  /// Divide lora_alpha by the root of r instead of r; null: false.
  std::optional<bool> use_rslora;
  /// Train the weights' directions by factors, and their sizes by themselves; null: false.
  std::optional<bool> use_dora;
  /// How the factors begin: true and gaussian add nothing at first, false does; null: true.
  std::optional<std::string> init_lora_weights;
  /// Numbers of the layers that get factors; empty: all.
  std::vector<std::string> layers_to_transform;
  /// Names of the lists of layers that layers_to_transform counts in; empty: any.
  std::vector<std::string> layers_pattern;
  /// Other ranks: of linears whose names end in what a regular expression matches.
  NumberMap rank_pattern;
  /// Other values of lora_alpha, likewise.
  NumberMap alpha_pattern;
  /// Train an embedding of modules_to_save that is the head's weight too as both; null: false.
  std::optional<bool> ensure_weight_tying;

  bool operator==(const LoraSection&) const = default;
};

struct TokenizerSection {
  /// A folder with tokenizer.json or vocab.json and merges.txt, or such a file; empty: the model's
  /// folder.
  std::string path;
};

/// What the model is trained for.
struct TaskSection {
  /// language_modeling predicts the next token, sequence_classification a label of each row,
  /// preference tunes a language model to answers that people prefer, reward_model trains a head
  /// that tells how good an answer is; null: what the model's folder is for, language_modeling
  /// where it does not say.
  std::optional<std::string> type;
  /// For sequence_classification: single_label_classification, multi_label_classification (several
  /// labels a row) or regression (numbers); null: the model's, or what the rows' labels look like.
  std::optional<std::string> problem_type;
  /// For sequence_classification: the labels, in the order of their numbers; empty: the model's
  /// own, or those that occur in the training rows, sorted.
  std::vector<std::string> labels;
  /// For sequence_classification: balanced, by how rare a label is among the training rows, or a
  /// number for each label, in their order; empty: all weigh the same.
  std::vector<std::string> class_weights;
  /// For sequence_classification: rows that are told surely weigh less by (1 - p) to this power.
  double focal_gamma = 0.0;
  /// For two labels, or several a row: fixed takes a label for told above 0.5; tuned looks for the
  /// threshold of the largest F1 on data.validation, and saves it with the model.
  std::string thresholds = "fixed";
};

/// For task.type=preference: names are those of TRL's DPO, KTO, CPO and ORPO trainers.
struct PreferenceSection {
  /// dpo and ipo compare pairs with a reference, the model as it was; kto judges answers one by
  /// one; simpo, cpo and orpo need no reference.
  std::string objective = "dpo";
  /// Of dpo, cpo and kto, the loss of a pair or of an answer, by TRL's names; null: sigmoid, of kto
  /// kto.
  std::optional<std::string> loss_type;
  /// How strongly answers are told apart, and how near the reference the model stays; null: 0.1, of
  /// simpo 2.
  std::optional<double> beta;
  /// The share of pairs whose answers are taken for swapped.
  double label_smoothing = 0.0;
  /// For dpo and ipo: compare with a model to which all answers are equally likely.
  bool reference_free = false;
  /// For dpo: the weight of the chosen answers' -log p, the mean of a token, that is added; null:
  /// none is.
  std::optional<double> rpo_alpha;
  /// For dpo with loss_type=discopop: how sharply its two losses are mixed.
  double discopop_tau = 0.05;
  /// For simpo: how far the reward of the chosen answer is to be above the other's.
  double simpo_gamma = 0.5;
  /// For cpo: the weight of the chosen answers' -log p, the mean of a token, that is added.
  double cpo_alpha = 1.0;
  /// For kto: the weight of wanted answers.
  double desirable_weight = 1.0;
  /// For kto: the weight of unwanted answers.
  double undesirable_weight = 1.0;
  /// For task.type=reward_model: how strongly the rewards of a pair are drawn around 0; null: not.
  std::optional<double> center_rewards_coefficient;
  /// The most tokens of a prompt, whose end is kept; null: as many as data.sequence_length leaves.
  std::optional<int64_t> max_prompt_length;
  /// Which end of a row that is longer than data.sequence_length is kept.
  std::string truncation_mode = "keep_start";
  /// Train without dropout, as TRL does, whatever config.json says.
  bool disable_dropout = true;
  /// The reference's scores are computed once, before the first step, in any case.
  bool precompute_ref_log_probs = true;
  /// Rows or pairs that are scored at once; null: per_device_eval_batch_size.
  std::optional<int64_t> precompute_ref_batch_size;
};

/// What is trained and evaluated on.
struct DataSection {
  /// Files to train on: paths or globs; text, JSON lines, CSV or TSV, also gzip and zstd of each.
  std::vector<std::string> train;
  /// Files to evaluate on; empty: see validation_fraction.
  std::vector<std::string> validation;
  /// Files for the closing test (do_predict).
  std::vector<std::string> test;
  /// Share of the training documents held out for evaluation where data.validation is empty, 0 to
  /// 1.
  double validation_fraction = 0.0;
  /// Share of the training documents held out for the closing test where data.test is empty, 0 to
  /// 1.
  double test_fraction = 0.0;
  /// Which documents are held out.
  int64_t split_seed = 0;
  /// Tokens in a training sequence; 0: what the model allows, at most 1024.
  int64_t sequence_length = 0;
  /// How the files are read; auto goes by their names.
  std::string format = "auto";
  /// The field or column that holds the text.
  std::string text_field = "text";
  /// For sequence_classification: the field of a second text beside the first (two sentences that
  /// are compared); empty: none.
  std::string text_pair_field;
  /// For sequence_classification: the field of a row's label, or of a list of its labels; several
  /// fields: one for each label, 0 or 1, or for each number.
  std::vector<std::string> label_field = {"label"};
  /// For sequence_classification: what stands between the labels of a row (",", "|"); empty: the
  /// field is one label, or a list as JSON and Python write it.
  std::string label_delimiter;
  /// none: the text field is the document; alpaca: instruction, input and output, the prompt's loss
  /// masked; pairs: instruction and output alone.
  std::string prompt = "none";
  /// The field of the instruction, for prompt=alpaca and pairs.
  std::string instruction_field = "instruction";
  /// The field of the optional input, for prompt=alpaca.
  std::string input_field = "input";
  /// The field of the answer, for prompt=alpaca and pairs.
  std::string output_field = "output";
  /// Join documents and cut them into full sequences; false: one document a sequence, cut or
  /// padded.
  bool packing = true;
  /// Put the end-of-text token after each document, where the tokenizer has one.
  bool append_eos = true;
  /// What a document of plain text is: the whole file, a line, or a paragraph between blank lines.
  std::string text_documents = "file";
  /// For packing=false, a document longer than a sequence: split over several, or truncate.
  std::string long_documents = "split";
  /// Bytes that are not UTF-8: error, or replace by U+FFFD.
  std::string invalid_utf8 = "error";
  /// Folder of the tokenized data; empty: ~/.cache/lockstep/data (or below XDG_CACHE_HOME).
  std::string cache_dir;
};

/// Arguments of the learning-rate schedule (lr_scheduler_kwargs): those that the schedule takes and
/// that are not given have its own defaults.
struct SchedulerArguments {
  /// cosine: waves, default 0.5; cosine_with_restarts: hard restarts, default 1.
  std::optional<double> num_cycles;
  /// polynomial: the last learning rate, default 1e-7.
  std::optional<double> lr_end;
  /// polynomial: the exponent, default 1.
  std::optional<double> power;
  /// inverse_sqrt: steps, default the warm-up or 10000.
  std::optional<int64_t> timescale;
  /// cosine_with_min_lr and reduce_lr_on_plateau: the lowest learning rate.
  std::optional<double> min_lr;
  /// cosine_with_min_lr: the lowest learning rate as a share of learning_rate.
  std::optional<double> min_lr_rate;
  /// warmup_stable_decay: steps of the last phase (required there).
  std::optional<int64_t> num_decay_steps;
  /// warmup_stable_decay: steps of the middle phase, default the rest.
  std::optional<int64_t> num_stable_steps;
  /// warmup_stable_decay: shape of the warm-up, default linear.
  std::optional<std::string> warmup_type;
  /// warmup_stable_decay: shape of the decay, default cosine.
  std::optional<std::string> decay_type;
  /// warmup_stable_decay: the lowest learning rate as a share of learning_rate, default 0.
  std::optional<double> min_lr_ratio;
  /// reduce_lr_on_plateau: whether the metric should fall (min, the default) or rise (max).
  std::optional<std::string> mode;
  /// reduce_lr_on_plateau: the learning rate is multiplied by this, default 0.1.
  std::optional<double> factor;
  /// reduce_lr_on_plateau: evaluations without improvement before it is, default 10.
  std::optional<int64_t> patience;
  /// reduce_lr_on_plateau: the least change that is an improvement, default 1e-4.
  std::optional<double> threshold;
  /// reduce_lr_on_plateau: rel (the default) or abs.
  std::optional<std::string> threshold_mode;
  /// reduce_lr_on_plateau: evaluations to wait after a reduction, default 0.
  std::optional<int64_t> cooldown;
  /// reduce_lr_on_plateau: smaller changes of the learning rate are not made, default 1e-8.
  std::optional<double> eps;
};

/// Hugging Face's TrainingArguments, by their names and with their defaults. One step is one
/// optimizer update. Names that this program knows but that are no field here are in
/// config/core/known_names.cpp, each with its answer.
struct TrainingSection {
  // Basics

  /// Folder of everything that the run writes.
  std::string output_dir;
  /// Evaluate when training ends.
  bool do_eval = false;
  /// Evaluate on data.test when training ends.
  bool do_predict = false;
  /// Steps to train; positive: num_train_epochs does not count.
  int64_t max_steps = -1;
  /// Passes over the training data; may be a fraction.
  double num_train_epochs = 3.0;
  /// Seed of the initial weights, of dropout and, without data_seed, of the order of the data.
  int64_t seed = 42;
  /// Seed of the order of the data; null: seed.
  std::optional<int64_t> data_seed;
  /// Use deterministic kernels alone, on GPUs too.
  bool full_determinism = false;
  /// Folder of a checkpoint, or true: the latest checkpoint-N in output_dir.
  std::optional<std::string> resume_from_checkpoint;
  /// After a resume, read the data from their beginning.
  bool ignore_data_skip = false;

  // Batch

  /// Sequences in a micro-batch of one data-parallel rank.
  int64_t per_device_train_batch_size = 8;
  /// The same, in evaluation.
  int64_t per_device_eval_batch_size = 8;
  /// Micro-batches of a rank in a step.
  int64_t gradient_accumulation_steps = 1;
  /// Halve the micro-batch when memory runs out.
  bool auto_find_batch_size = false;
  /// Divide the loss by the target tokens of all ranks.
  bool average_tokens_across_devices = true;

  // Optimizer

  /// The highest learning rate; the schedule multiplies it.
  double learning_rate = 5e-5;
  /// Decoupled weight decay; biases and norms do not decay.
  double weight_decay = 0.0;
  /// Decay of the first moment.
  double adam_beta1 = 0.9;
  /// Decay of the second moment.
  double adam_beta2 = 0.999;
  /// Added to the root of the second moment.
  double adam_epsilon = 1e-8;
  /// Largest norm of all gradients together; 0: no clipping.
  double max_grad_norm = 1.0;
  /// The optimizer.
  std::string optim = "adamw_torch_fused";
  /// Share of the target that is spread over the vocabulary, or over the labels.
  double label_smoothing_factor = 0.0;
  /// Scale of NEFTune noise on the embeddings.
  std::optional<double> neftune_noise_alpha;

  // Schedule

  /// How the learning rate changes over the steps.
  std::string lr_scheduler_type = "linear";
  /// Arguments of the schedule.
  SchedulerArguments lr_scheduler_kwargs;
  /// Steps of warm-up; between 0 and 1: that share of all steps, rounded up.
  double warmup_steps = 0.0;

  // Precision

  /// bfloat16 weights and activations, float32 master weights and moments.
  bool bf16 = false;
  /// float16 weights and activations with dynamic loss scaling.
  bool fp16 = false;
  /// Evaluate in bfloat16.
  bool bf16_full_eval = false;
  /// Evaluate in float16.
  bool fp16_full_eval = false;
  /// TF32 in float32 matrix products on GPUs; null: as libtorch has it (off).
  std::optional<bool> tf32;

  // Memory

  /// Recompute activations in the backward pass: the same as parallel.recompute=full.
  bool gradient_checkpointing = false;

  // Logging

  /// When a line of metrics is written.
  std::string logging_strategy = "steps";
  /// Steps between two lines; below 1: a share of all steps.
  double logging_steps = 500.0;
  /// Write a line after the first step too.
  bool logging_first_step = false;
  /// What is told on the main rank; passive is info.
  std::string log_level = "passive";
  /// What is told on the other ranks.
  std::string log_level_replica = "warning";
  /// true: plain lines instead of the progress line; null: as the terminal allows.
  std::optional<bool> disable_tqdm;
  /// Where metrics go beside metrics.jsonl.
  std::vector<std::string> report_to = {"none"};
  /// A name of the run for the trackers of report_to.
  std::optional<std::string> run_name;
  /// The project that W&B puts the run into.
  std::string project = "huggingface";
  /// Where TensorBoard's file goes; null: output_dir/runs/<time>_<host>.
  std::optional<std::string> logging_dir;

  // Evaluation

  /// When the model is evaluated during training.
  std::string eval_strategy = "no";
  /// Steps between two evaluations; below 1: a share of all steps; null: logging_steps.
  std::optional<double> eval_steps;
  /// Steps or epochs, by eval_strategy, before the first evaluation.
  double eval_delay = 0.0;
  /// Evaluate before the first step too.
  bool eval_on_start = false;

  // Saving

  /// When a checkpoint is written.
  std::string save_strategy = "steps";
  /// Steps between two checkpoints; below 1: a share of all steps.
  double save_steps = 500.0;
  /// Checkpoints to keep; null: all.
  std::optional<int64_t> save_total_limit;
  /// Save no optimizer state: such a checkpoint cannot be resumed.
  bool save_only_model = false;
  /// Load the best checkpoint when training ends.
  bool load_best_model_at_end = false;
  /// The metric that tells which checkpoint is best; null: loss.
  std::optional<std::string> metric_for_best_model;
  /// Whether the best metric is the largest; null: as the metric is (not of losses and errors).
  std::optional<bool> greater_is_better;
  /// Stop after so many evaluations, one after another, that are no better; null: never.
  std::optional<int64_t> early_stopping_patience;
  /// The change of the metric that is better, for early stopping.
  double early_stopping_threshold = 0.0;

  // Data

  /// Leave out the last batch of an epoch where it is not full.
  bool dataloader_drop_last = false;
  /// Threads that read ahead; 0: one.
  int64_t dataloader_num_workers = 0;
  /// Steps to read ahead; null: 2.
  std::optional<int64_t> dataloader_prefetch_factor;
  /// The order of the training data.
  std::string train_sampling_strategy = "random";

  // Ranks

  /// What carries the messages of ranks; empty: nccl on GPUs; on CPUs shared memory within a
  /// machine and gloo between machines.
  std::string ddp_backend;
  /// Seconds before an operation between ranks is given up.
  int64_t ddp_timeout = 1800;
  /// Look for parameters that a step did not use, instead of naming them in an error.
  bool ddp_find_unused_parameters = false;
  /// Mebibytes of gradients that are reduced together.
  double ddp_bucket_cap_mb = 25.0;
  /// Train on the CPU even where GPUs are visible.
  bool use_cpu = false;
};

/// Where a kind of state lives.
struct OffloadSection {
  /// none: on the device; cpu: in host memory; nvme: in files below path.
  std::string device = "none";
  /// Folder of the files, for device=nvme.
  std::string path;
};

struct OptimizerOffloadSection {
  /// none: on the device; cpu: in host memory; nvme: in files below path.
  std::string device = "none";
  /// Folder of the files, for device=nvme.
  std::string path;
  /// Share of the state that is offloaded, 0 to 1; the rest stays on the device.
  double ratio = 1.0;
};

/// How ranks share the work: data x pipeline x context x tensor is the number of ranks.
struct ParallelSection {
  /// Data-parallel ranks; null: all ranks divided by the other sizes.
  std::optional<int64_t> data;
  /// Ranks that share each layer.
  int64_t tensor = 1;
  /// Stages of the pipeline.
  int64_t pipeline = 1;
  /// Ranks that share each sequence.
  int64_t context = 1;
  /// How ranks that share sequences attend: ring, keys and values pass round; ulysses, the ranks
  /// trade parts of the sequence for heads, which must divide.
  std::string context_attention = "ring";
  /// Share the work between tensor-parallel regions by sequence too.
  bool sequence_parallel = false;
  /// What data-parallel ranks share: 0 nothing, 1 optimizer, 2 and gradients, 3 and parameters.
  int64_t zero_stage = 0;
  /// Neighbouring data-parallel ranks that share a state of which others hold replicas; -1: those
  /// of one machine; 0: all share one.
  int64_t shard_ranks = 0;
  /// Allow zero_stage 2 and 3 in a pipeline, where every micro-batch pays for their communication.
  bool zero_in_pipeline = false;
  /// Steps as CUDA graphs, launched at once: auto, those of one shape where the plan allows; off.
  std::string cuda_graphs = "off";
  /// Pipeline schedule: naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, or a file of actions.
  std::string schedule = "1f1b";
  /// Pieces of the model that each stage holds, for schedule=interleaved.
  int64_t virtual_stages = 1;
  /// Stages by even cost (auto), by parameters, or by hand: layers of each stage as 3,4,4,1.
  std::string split = "auto";
  /// Units gathered ahead of use in zero_stage=3.
  int64_t prefetch_units = 1;
  /// Gather units ahead until they have so many elements, instead of prefetch_units; null:
  /// not.
  std::optional<int64_t> prefetch_elements;
  /// In zero_stage=3, parameters of fewer elements than this are not dropped after use.
  int64_t persistence_threshold = 0;
  /// Activations recomputed in the backward pass: selective, the MLP's; full, all of a layer.
  std::string recompute = "none";
  /// Recompute every n-th layer; 1: all.
  int64_t recompute_every = 1;
  /// Where optimizer state lives.
  OptimizerOffloadSection offload_optimizer;
  /// Where parameters live.
  OffloadSection offload_param;
};

/// The factor that keeps float16 gradients from vanishing.
struct LossScaleSection {
  /// The factor, for ever; 0: it follows overflows.
  double fixed = 0.0;
  /// The factor begins at 2 to this.
  int64_t initial_power = 16;
  /// Steps without an overflow before the factor doubles.
  int64_t window = 1000;
  /// Overflows before the factor halves.
  int64_t hysteresis = 2;
  /// Good steps make up for overflows at once, not only when the factor doubles.
  bool consecutive_hysteresis = false;
  /// The least that the factor falls to.
  double minimum = 1.0;
};

/// Numbers: what TrainingArguments have no name for.
struct PrecisionSection {
  /// Keep no float32 masters of bfloat16 weights: updates are rounded up or down at random.
  bool stochastic_rounding = false;
  /// Type in which gradients are sent and summed over ranks; auto: that in which they are
  /// accumulated.
  std::string reduce_type = "auto";
  /// The factor that keeps float16 gradients from vanishing.
  LossScaleSection loss_scale;
};

/// What TrainingArguments have no name for.
struct CheckpointSection {
  /// Every so many steps, and before each checkpoint, compare what several ranks hold alike, and
  /// end with the rank that differs; 0: never.
  int64_t compare_replicas = 100;
  /// Compare every chunk's hash when a checkpoint is loaded.
  bool verify = true;
  /// Write checkpoints while training goes on, from a copy in host memory.
  bool async = true;
  /// Resume on other data, tokens or rows than those that the checkpoint was trained on.
  bool allow_other_data = false;
  /// What SIGUSR1 does to a run after the step: save, save_and_stop or ignore.
  std::string on_usr1 = "save";
  /// What SIGUSR2 does to a run after the step: save, save_and_stop or ignore.
  std::string on_usr2 = "save_and_stop";
};

struct MonitorSection {
  /// auto: one live line on a terminal, plain lines elsewhere; line, plain or none to choose.
  std::string progress = "auto";
  /// Peak of one device in matrix products, TFLOP/s, for the share of the peak; null: measured.
  std::optional<double> peak_tflops;
  /// Tell the memory of the fullest rank by kind, at each phase, with every logged step.
  bool log_memory = false;
};

/// The whole configuration, resolved once and passed by const reference in the narrowest struct.
struct Config {
  ModelSection model;
  LoraSection lora;
  TokenizerSection tokenizer;
  TaskSection task;
  PreferenceSection preference;
  DataSection data;
  TrainingSection training;
  ParallelSection parallel;
  PrecisionSection precision;
  CheckpointSection checkpoint;
  MonitorSection monitor;
};

}  // namespace lockstep::config
