#include "config/core/known_names.h"

#include <algorithm>

#include "config/core/schema.h"

namespace lockstep::config {
namespace {

constexpr auto kMapped = KnownName::Answer::kMapped;
constexpr auto kNoEffect = KnownName::Answer::kNoEffect;
constexpr auto kRefused = KnownName::Answer::kRefused;

constexpr std::string_view kNoHub =
    "nothing is pushed to the Hub; output_dir is a folder that `hf upload` takes as it is";
constexpr std::string_view kNoPython =
    "only used by PyTorch's compiler; there is no Python to compile";
constexpr std::string_view kNoTpu = "there is no TPU support";
constexpr std::string_view kOneLoader = "the loader is a thread that reads mapped files";
constexpr std::string_view kOwnKernels = "the kernels are this program's own already";
constexpr std::string_view kStreaming = "evaluation keeps sums alone, no predictions";
constexpr std::string_view kNoDownload =
    "nothing is fetched from the Hub; give files: data.train, data.validation, data.test";

// Alphabetical within each group.
constexpr KnownName kKnownNames[] = {
    // Read elsewhere (config/compat/legacy.cpp, config/compat/accelerate.cpp,
    // config/compat/deepspeed.cpp).
    {"accelerator_config", kMapped, false, "", ""},
    {"adafactor", kMapped, true, "", ""},
    {"deepspeed", kMapped, false, "", ""},
    {"do_regression", kMapped, true, "", ""},
    {"fsdp", kMapped, false, "", ""},
    {"fsdp_config", kMapped, false, "", ""},
    {"group_by_length", kMapped, true, "", ""},
    {"parallelism_config", kMapped, false, "", ""},
    {"warmup_ratio", kMapped, false, "", ""},

    // Accepted: they change no result here.
    {"batch_eval_metrics", kNoEffect, true, "false", kStreaming},
    {"dataloader_in_order", kNoEffect, true, "true", "batches always come in order"},
    {"dataloader_multiprocessing_context", kNoEffect, false, "", kOneLoader},
    {"dataloader_persistent_workers", kNoEffect, true, "false", kOneLoader},
    {"dataloader_pin_memory", kNoEffect, true, "true", "batches are pinned where there is a GPU"},
    {"ddp_broadcast_buffers", kNoEffect, true, "false", "the models have no buffers"},
    {"ddp_static_graph", kNoEffect, true, "false", "the graph is known to be static"},
    {"debug",
     kNoEffect,
     false,
     "|[]",
     "a NaN or an infinity always stops with the parameter named"},
    {"do_train", kNoEffect, true, "true", "`lockstep train` trains; `lockstep eval` evaluates"},
    {"enable_jit_checkpoint", kNoEffect, true, "true|false", "SIGTERM always saves before the end"},
    {"eval_accumulation_steps", kNoEffect, false, "", kStreaming},
    {"eval_do_concat_batches", kNoEffect, true, "true", kStreaming},
    {"eval_use_gather_object", kNoEffect, true, "false", kStreaming},
    {"fp16_backend", kNoEffect, false, "auto", "there is one float16 implementation"},
    {"fp16_opt_level", kNoEffect, false, "O1", "only used by NVIDIA Apex, which is not used"},
    {"fsdp_min_num_params", kNoEffect, false, "0", "the units are the model's blocks"},
    {"fsdp_transformer_layer_cls_to_wrap",
     kNoEffect,
     false,
     "",
     "the units are the model's blocks"},
    {"gradient_checkpointing_kwargs",
     kNoEffect,
     false,
     "{}",
     "recomputation has one form, with nothing to choose"},
    {"half_precision_backend", kNoEffect, false, "auto", "there is one implementation"},
    {"hub_always_push", kNoEffect, true, "false", kNoHub},
    {"hub_model_id", kNoEffect, false, "", kNoHub},
    {"hub_private_repo", kNoEffect, true, "false", kNoHub},
    {"hub_revision", kNoEffect, false, "", kNoHub},
    {"hub_strategy", kNoEffect, false, "every_save", kNoHub},
    {"hub_token", kNoEffect, false, "", kNoHub},
    {"include_for_metrics", kNoEffect, false, "[]", kStreaming},
    {"include_inputs_for_metrics", kNoEffect, true, "false", kStreaming},
    {"include_num_input_tokens_seen",
     kNoEffect,
     false,
     "no|false",
     "tokens are always counted, in metrics.jsonl"},
    {"include_tokens_per_second",
     kNoEffect,
     true,
     "true|false",
     "tokens per second are always told"},
    {"jit_mode_eval", kNoEffect, true, "false", kNoPython},
    {"label_names", kNoEffect, false, "|[]|[labels]", "labels are made from the text"},
    {"length_column_name", kNoEffect, false, "length", "lengths are known from the tokenized data"},
    {"liger_kernel_config", kNoEffect, false, "{}", kOwnKernels},
    {"local_rank", kNoEffect, false, "*", ""},
    {"log_on_each_node", kNoEffect, true, "true|false", "rank 0 alone writes metrics"},
    {"logging_nan_inf_filter",
     kNoEffect,
     true,
     "true|false",
     "a NaN or an infinity stops the run with the parameter named"},
    {"mp_parameters", kNoEffect, false, "", "only used on Amazon SageMaker"},
    {"overwrite_output_dir",
     kNoEffect,
     true,
     "false",
     "nothing in output_dir is removed; checkpoints of the same step are replaced"},
    {"prediction_loss_only", kNoEffect, true, "true|false", kStreaming},
    {"push_to_hub_model_id", kNoEffect, false, "", kNoHub},
    {"push_to_hub_organization", kNoEffect, false, "", kNoHub},
    {"push_to_hub_token", kNoEffect, false, "", kNoHub},
    {"ray_scope", kNoEffect, false, "last", "there is no hyperparameter search"},
    {"remove_unused_columns",
     kNoEffect,
     true,
     "true|false",
     "only the fields that are used are read"},
    {"restore_callback_states_from_checkpoint",
     kNoEffect,
     true,
     "true",
     "the whole state is always restored"},
    {"save_on_each_node",
     kNoEffect,
     true,
     "false",
     "all ranks write their slices into one folder that all nodes share"},
    {"skip_memory_metrics", kNoEffect, true, "true|false", "peak memory is always told"},
    {"torch_compile", kNoEffect, true, "false", kNoPython},
    {"torch_compile_backend", kNoEffect, false, "", kNoPython},
    {"torch_compile_mode", kNoEffect, false, "", kNoPython},
    {"torch_empty_cache_steps",
     kNoEffect,
     false,
     "",
     "the allocator's cache is kept between steps"},
    {"torchdynamo", kNoEffect, false, "", kNoPython},
    {"tpu_metrics_debug", kNoEffect, true, "false", kNoTpu},
    {"trackio_bucket_id", kNoEffect, false, "", "there is no Trackio reporter"},
    {"trackio_space_id", kNoEffect, false, "trackio", "there is no Trackio reporter"},
    {"trackio_static_space_id", kNoEffect, false, "", "there is no Trackio reporter"},
    {"use_cache", kNoEffect, true, "false", "training keeps no key-value cache"},
    {"use_ipex", kNoEffect, true, "false", kOwnKernels},
    {"use_legacy_prediction_loop", kNoEffect, true, "false", "there is one evaluation loop"},
    {"use_liger_kernel", kNoEffect, true, "false", kOwnKernels},

    // Of run_classification.py and run_glue.py; they change no result here.
    {"dataset_config_name", kNoEffect, false, "", kNoDownload},
    {"ignore_mismatched_sizes",
     kNoEffect,
     true,
     "true|false",
     "a head of other labels begins at random, and a line says so"},
    {"metric_name",
     kNoEffect,
     false,
     "",
     "every metric of the problem is told; training.metric_for_best_model chooses one"},
    {"model_revision", kNoEffect, false, "main", kNoDownload},
    {"overwrite_cache", kNoEffect, true, "false", "a token file is named by what it was made of"},
    {"pad_to_max_length",
     kNoEffect,
     true,
     "true|false",
     "rows are filled to the longest of a batch, which changes no result"},
    {"preprocessing_num_workers", kNoEffect, false, "*", "texts are tokenized on every core"},
    {"remove_columns", kNoEffect, false, "", "only the fields that are used are read"},
    {"remove_splits", kNoEffect, false, "", kNoDownload},
    {"shuffle_seed", kNoEffect, false, "42", "the order of the data follows training.data_seed"},
    {"shuffle_train_dataset",
     kNoEffect,
     true,
     "true|false",
     "rows come in random order: see training.train_sampling_strategy"},
    {"text_column_delimiter",
     kNoEffect,
     false,
     "",
     "a text is one field; a second one is data.text_pair_field"},
    {"token", kNoEffect, false, "", kNoDownload},
    {"trust_remote_code", kNoEffect, true, "false", "no code of a model's folder is run"},
    {"use_auth_token", kNoEffect, true, "false", kNoDownload},
    {"use_fast_tokenizer", kNoEffect, true, "true|false", "there is one tokenizer"},

    // Refused: they would change the result, and are not done here.
    {"max_eval_samples", kRefused, false, "", "give a shorter file"},
    {"max_predict_samples", kRefused, false, "", "give a shorter file"},
    {"max_train_samples", kRefused, false, "", "give a shorter file"},
    {"optim_args",
     kRefused,
     false,
     "",
     "the optimizer's arguments are keys: adam_beta1, adam_beta2, adam_epsilon, weight_decay"},
    {"optim_target_modules", kRefused, false, "", "only used by the GaLore and APOLLO optimizers"},
    {"past_index", kRefused, false, "-1", "models that carry state between batches are not known"},
    {"push_to_hub", kRefused, true, "false", kNoHub},
    {"save_safetensors",
     kRefused,
     true,
     "true",
     "checkpoints are safetensors; pickles are neither written nor read"},
    {"sharded_ddp", kRefused, false, "|false|[]", "it was FairScale's; use parallel.zero_stage"},
    {"split_batches",
     kRefused,
     true,
     "false",
     "per_device_train_batch_size is the batch of one rank; divide it yourself"},
    {"tpu_num_cores", kRefused, false, "", kNoTpu},
    {"use_mps_device", kRefused, true, "false", "there is no Apple GPU support"},
    {"xpu_backend", kRefused, false, "", "use ddp_backend"},
};

struct Rename {
  std::string_view from, to;
};

constexpr Rename kRenames[] = {
    {"activation_checkpointing", "gradient_checkpointing"},
    {"activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"},
    {"evaluation_strategy", "eval_strategy"},
    {"no_cuda", "use_cpu"},
    {"per_gpu_eval_batch_size", "per_device_eval_batch_size"},
    {"per_gpu_train_batch_size", "per_device_train_batch_size"},
};

// run_clm.py, run_classification.py and their like.
constexpr Rename kScriptKeys[] = {
    {"block_size", "data.sequence_length"},
    {"cache_dir", "data.cache_dir"},
    {"label_column_name", "data.label_field"},
    {"max_seq_length", "data.sequence_length"},
    {"model_name_or_path", "model.path"},
    {"test_file", "data.test"},
    {"text_column_name", "data.text_field"},
    {"text_column_names", "data.text_field"},
    {"tokenizer_name", "tokenizer.path"},
    {"tokenizer_name_or_path", "tokenizer.path"},
    {"train_file", "data.train"},
    {"validation_file", "data.validation"},
};

}  // namespace

std::span<const KnownName> known_names() {
  return kKnownNames;
}

const KnownName* find_known_name(std::string_view name) {
  for (const KnownName& known : kKnownNames) {
    if (known.name == name) {
      return &known;
    }
  }
  return nullptr;
}

std::string_view current_name(std::string_view name) {
  for (const Rename& rename : kRenames) {
    if (rename.from == name) {
      return rename.to;
    }
  }
  return name;
}

std::string_view script_key(std::string_view name) {
  for (const Rename& rename : kScriptKeys) {
    if (rename.from == name) {
      return rename.to;
    }
  }
  return {};
}

bool is_training_name(std::string_view name) {
  const std::string_view current = current_name(name);
  return find_known_name(current) != nullptr ||
         find_key("training." + std::string(current)) != nullptr;
}

}  // namespace lockstep::config
