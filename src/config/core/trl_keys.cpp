// Tables of TRL's names.
#include "config/core/trl_keys.h"

#include <algorithm>
#include <optional>

#include "config/core/scalar.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;
using enum KeyRule::Takes;

constexpr TrlKey kTrlKeys[] = {
    {"beta", "preference.beta"},
    {"bnb_4bit_quant_type", "quantization.bnb_4bit_quant_type"},
    {"center_rewards_coefficient", "preference.center_rewards_coefficient"},
    {"chat_template_path", "data.chat_template"},
    {"cpo_alpha", "preference.cpo_alpha"},
    {"dataset_config", "data.dataset_config_name"},
    {"dataset_test_split", "data.validation_split"},
    {"dataset_text_field", "data.text_field"},
    {"dataset_train_split", "data.train_split"},
    {"desirable_weight", "preference.desirable_weight"},
    {"disable_dropout", "preference.disable_dropout"},
    {"discopop_tau", "preference.discopop_tau"},
    {"label_smoothing", "preference.label_smoothing"},
    {"load_in_4bit", "quantization.load_in_4bit"},
    {"load_in_8bit", "quantization.load_in_8bit"},
    {"lora_alpha", "lora.lora_alpha"},
    {"lora_dropout", "lora.lora_dropout"},
    {"lora_modules_to_save", "lora.modules_to_save"},
    {"lora_r", "lora.r"},
    {"lora_target_modules", "lora.target_modules"},
    {"max_length", "data.sequence_length"},
    {"max_prompt_length", "preference.max_prompt_length"},
    {"precompute_ref_batch_size", "preference.precompute_ref_batch_size"},
    {"precompute_ref_log_probs", "preference.precompute_ref_log_probs"},
    {"reference_free", "preference.reference_free"},
    {"rpo_alpha", "preference.rpo_alpha"},
    {"simpo_gamma", "preference.simpo_gamma"},
    {"truncation_mode", "preference.truncation_mode"},
    {"undesirable_weight", "preference.undesirable_weight"},
    {"use_bnb_nested_quant", "quantization.double_quant"},
    {"use_dora", "lora.use_dora"},
    {"use_rslora", "lora.use_rslora"},
};

bool is_set(const RuleTarget& target, const Path& path) {
  const Value* found = target.settings.find(path);
  return found != nullptr && !found->is_null();
}

/// Sets a key unless a later layer, such as the command line, has set it.
void set_layered(
    const RuleTarget& target, const std::string& key, const std::string& text, const Value& from) {
  const Value* found = target.settings.find(split_path(key));
  if (found == nullptr || found->origin.order <= from.origin.order) {
    target.set(key, text, from);
  }
}

/// Returns nullopt after reporting a value that is not true or false.
std::optional<bool> read_bool(
    const RuleTarget& target, const std::string& name, const Value& value) {
  const auto word = to_bool(value.text);
  if (!word) {
    target.refuse(name, value, "must be true or false");
  }
  return word;
}

/// Reads loss_type, which is a loss of SFT or of preferences.
void read_loss_type(const RuleTarget& target, const std::string& name, const Value& value) {
  const Value& loss = value.is_list() && value.items.size() == 1 ? value.items[0] : value;
  if (loss.is_list()) {
    target.refuse(name, value, "a sum of several losses is not supported");
  } else if (loss.text == "dft") {
    target.refuse(name, value, "not supported; use nll");
  } else if (loss.text != "nll" && loss.text != "chunked_nll") {
    set_layered(target, "preference.loss_type", loss.text, value);
  }
}

/// Reads packing: true or false, as in TRL, or a value of data.packing.
void read_packing(const RuleTarget& target, const std::string&, const Value& value) {
  const auto word = to_bool(value.text);
  set_layered(target, "data.packing", !word ? value.text : *word ? "documents" : "none", value);
}

void read_packing_strategy(const RuleTarget& target, const std::string& name, const Value& value) {
  const Value* packing = target.settings.find(Path{"data", "packing"});
  const bool is_packed = packing != nullptr && packing->text == "documents";
  if (value.text != "bfd" && value.text != "bfd_split" && value.text != "wrapped") {
    target.refuse(name, value, "must be bfd, bfd_split or wrapped");
  } else if (is_packed && value.text == "wrapped") {
    set_layered(target, "data.packing", "concatenate", value);
  } else if (is_packed && value.text == "bfd_split") {
    set_layered(target, "data.long_documents", "split", value);
  }
}

/// Reads use_peft, which selects an adapter with TRL's defaults.
void read_use_peft(const RuleTarget& target, const std::string& name, const Value& value) {
  static constexpr TrlKey kDefaults[] = {
      {"r", "16"}, {"lora_alpha", "32"}, {"lora_dropout", "0.05"}};
  const bool is_used = read_bool(target, name, value).value_or(false);
  for (const auto& [key, number] : kDefaults) {
    if (is_used && !is_set(target, {"lora", std::string(key)})) {
      target.set("lora." + std::string(key), std::string(number), value);
    }
  }
}

void read_assistant_only(const RuleTarget& target, const std::string& name, const Value& value) {
  if (const auto word = read_bool(target, name, value)) {
    set_layered(target, "data.chat_loss", *word ? "assistant" : "all", value);
  }
}

void read_dtype(const RuleTarget& target, const std::string& name, const Value& value) {
  if (value.text == "bfloat16" || value.text == "float16") {
    set_layered(target, value.text == "float16" ? "training.fp16" : "training.bf16", "true", value);
  } else if (value.text != "auto" && value.text != "float32") {
    target.refuse(name, value, "must be auto, float32, bfloat16 or float16");
  }
}

constexpr KeyRule converted(
    std::string_view name,
    std::string_view text,
    KeyRule::Read read,
    KeyRule::Takes takes = kValue) {
  return {.name = name, .kind = kRead, .text = text, .takes = takes, .read = read};
}

constexpr std::string_view kOwnAttention = "Lockstep chooses the attention kernel";
constexpr std::string_view kTokenizer =
    "the tokenizer's special tokens are those of its folder: set them in tokenizer_config.json";
constexpr std::string_view kNoEffect = "does not change results";
constexpr std::string_view kOneReference = "the reference is the initial model";
constexpr std::string_view kTokenized = "texts are tokenized on all cores";

constexpr KeyRule kTrlRules[] = {
    converted(
        "assistant_only_loss",
        "data.chat_loss=assistant; false: all",
        read_assistant_only,
        kSwitch),
    converted("dtype", "training.bf16, training.fp16", read_dtype),
    converted("loss_type", "preference.loss_type; nll: nothing", read_loss_type),
    converted("packing", "data.packing=documents; false: none", read_packing, kSwitch),
    converted("packing_strategy", "wrapped: data.packing=concatenate", read_packing_strategy),
    converted("use_peft", "section lora", read_use_peft, kSwitch),
    {"completion_only_loss",
     kRefused,
     "true",
     "a prompt is never learned; for chats, set data.chat_loss=all",
     kSwitch},

    {"attn_implementation", kIgnored, "", kOwnAttention},
    {"bnb_4bit_quant_storage", kIgnored, "", kNoEffect},
    {"dataset_batch_size", kIgnored, "", kTokenized},
    {"dataset_num_proc", kIgnored, "", kTokenized},
    {"eval_packing",
     kIgnored,
     "",
     "evaluation rows are packed like training rows, which does not change the loss",
     kSwitch},
    {"ignore_bias_buffers", kIgnored, "false", "the models have no buffers", kSwitch},
    {"lora_task_type", kIgnored, "CAUSAL_LM|SEQ_CLS", "the task is task.type"},
    {"pad_to_multiple_of", kIgnored, "", kNoEffect},
    {"padding_free", kIgnored, "false", kNoEffect, kSwitch},
    {"ref_model_mixup_alpha", kIgnored, "", kOneReference},
    {"ref_model_sync_steps", kIgnored, "", kOneReference},
    {"shuffle_dataset",
     kIgnored,
     "true|false",
     "rows are shuffled: see training.train_sampling_strategy",
     kSwitch},
    {"torch_dtype", kIgnored, "", "set training.bf16 or training.fp16"},
    {"use_liger_loss", kIgnored, "false", "Lockstep always uses its own fused kernels", kSwitch},
    {"use_logits_to_keep", kIgnored, "true|false", kNoEffect, kSwitch},

    {"activation_offloading",
     kRefused,
     "false",
     "activations are not offloaded; set gradient_checkpointing=true",
     kSwitch},
    {"dataset_kwargs", kRefused, "{}", "rows are always tokenized by Lockstep"},
    {"dataset_streaming", kRefused, "false", "data sets are files on this machine", kSwitch},
    {"eos_token", kRefused, "", kTokenizer},
    {"f_alpha_divergence_coef",
     kRefused,
     "1.0|1|0.5",
     "only f_divergence_type=reverse_kl is supported"},
    {"f_divergence_type", kRefused, "reverse_kl", "only reverse_kl is supported"},
    {"force_use_ref_model", kRefused, "false", kOneReference, kSwitch},
    {"generate_during_eval",
     kRefused,
     "false",
     "use lockstep generate; monitor.samples prints samples during training",
     kSwitch},
    {"ld_alpha", kRefused, "1.0|1", "length desensitization is not supported"},
    {"loss_weights", kRefused, "", "a sum of several losses is not supported"},
    {"lora_target_parameters",
     kRefused,
     "[]",
     "adapters belong to linear layers: use lora.target_modules"},
    {"model_adapter_name", kRefused, "", "set lora.adapter to the adapter's folder"},
    {"model_init_kwargs",
     kRefused,
     "{}",
     "set training.bf16 or training.fp16, and model keys directly"},
    {"pad_token", kRefused, "", kTokenizer},
    {"ref_adapter_name", kRefused, "", kOneReference},
    {"sync_ref_model", kRefused, "false", kOneReference, kSwitch},
    {"use_weighting", kRefused, "false", "pairs are not weighted", kSwitch},
};

}  // namespace

std::span<const TrlKey> trl_keys() {
  return kTrlKeys;
}

KeyRules trl_rules() {
  return kTrlRules;
}

bool is_trl_name(std::string_view name) {
  return std::ranges::find(kTrlKeys, name, &TrlKey::name) != std::end(kTrlKeys) ||
         find_rule(kTrlRules, name) != nullptr;
}

}  // namespace lockstep::config
