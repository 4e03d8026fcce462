// Reads DeepSpeed configuration files as configuration keys.
#include "config/compat/deepspeed.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "config/compat/deepspeed_batch.h"
#include "config/core/scalar.h"
#include "config/core/settings.h"
#include "config/core/yaml.h"

namespace lockstep::config {
namespace {

bool is_auto(const Value& value) {
  return value.is_scalar() && value.text == "auto";
}
/// Traverses a DeepSpeed file, applies the rule of each key and collects the settings.
class DeepspeedReader {
 public:
  DeepspeedReader(const Value& file, const DeepspeedContext& context)
      : file_(file),
        context_(context),
        settings_(Value::map(file.origin)) {}

  Value read() {
    apply_rules(file_, "");
    for (const auto& [reason, keys] : idle_) {
      context_.warnings.push_back(
          fmt::format("DeepSpeed's {} have no effect: {}", fmt::join(keys, ", "), reason));
    }
    copy("gradient_clipping", "training.max_grad_norm");
    copy("dataloader_drop_last", "training.dataloader_drop_last");
    copy("tensor_parallel.autotp_size", "parallel.tensor");
    copy("sequence_parallel_size", "parallel.context");
    precision();
    loss_scale();
    communication_type();
    zero();
    optimizer();
    scheduler();
    add_deepspeed_batch(file_, context_, settings_);
    return std::move(settings_);
  }

 private:
  const Value* at(const std::string& path) const {
    const Value* value = file_.find(split_path(path));
    return value == nullptr || value->is_null() || is_auto(*value) ? nullptr : value;
  }
  void copy(const std::string& from, const std::string& key) {
    if (const Value* value = at(from)) {
      merge_at(settings_, split_path(key), *value);
    }
  }
  void set(const std::string& key, const std::string& text, const Value& from) {
    set_key(settings_, key, text, from.origin);
  }
  void problem(
      const std::string& path,
      const Value& value,
      const std::string& why,
      const std::string& remedy = "") {
    context_.problems.add(
        "DeepSpeed's " + path, value.origin, fmt::format("{}: {}", short_text(value), why), remedy);
  }

  static bool has_keys_below(const std::string& path) {
    return std::ranges::any_of(
        deepspeed_rules(), [&](const KeyRule& rule) { return rule.name.starts_with(path + "."); });
  }

  void apply_rules(const Value& map, const std::string& prefix) {
    for (const Entry& entry : map.entries) {
      const std::string name = prefix.empty() && entry.name == "bfloat16" ? "bf16" : entry.name;
      const std::string path = prefix + name;
      const bool is_stage = path == "zero_optimization" && !entry.value.is_map();
      if (entry.name.starts_with("_") || is_stage) {
        continue;  // a comment key, common in JSON files
      }
      if (has_keys_below(path) && entry.value.is_map()) {
        apply_rules(entry.value, path + ".");
      } else if (const KeyRule* const rule = rule_of(path, prefix)) {
        apply(*rule, path, entry.value);
      } else {
        unknown(path, entry.value);
      }
    }
  }

  /// Returns the rule of the key or, if it has none, the rule of its section.
  static const KeyRule* rule_of(const std::string& path, const std::string& prefix) {
    const KeyRule* const own = find_rule(deepspeed_rules(), path);
    const bool is_below = own == nullptr && !prefix.empty();
    return is_below ? find_rule(deepspeed_rules(), prefix.substr(0, prefix.size() - 1)) : own;
  }

  /// Applies a rule. Keys that have no effect for the same reason share one warning.
  void apply(const KeyRule& rule, const std::string& path, const Value& value) {
    if (rule.kind == KeyRule::Kind::kRead || is_auto(value) || is_harmless(rule, value)) {
      return;
    }
    if (rule.kind == KeyRule::Kind::kRefused) {
      problem(path, value, std::string(rule.text));
    } else {
      idle_[std::string(rule.text)].push_back(path);
    }
  }

  void unknown(const std::string& path, const Value& value) {
    std::vector<std::string> names;
    for (const KeyRule& rule : deepspeed_rules()) {
      names.emplace_back(rule.name);
      names.emplace_back(rule.name.substr(0, rule.name.find('.')));
    }
    const std::string what = "unknown key." + did_you_mean(path, names);
    if (context_.allow_unknown) {
      context_.warnings.push_back(
          fmt::format("DeepSpeed's {} ({}) has no effect: {}", path, describe(value.origin), what));
    } else {
      context_.problems.add(
          "DeepSpeed's " + path, value.origin, what, "--allow-unknown-config ignores it");
    }
  }

  void precision() {
    for (const auto& [path, key] :
         {std::pair{"bf16.enabled", "training.bf16"},
          {"bfloat16.enabled", "training.bf16"},
          {"fp16.enabled", "training.fp16"}}) {
      const Value* value = at(path);
      if (value == nullptr) {
        continue;
      }
      // "enabled": false conflicts only with an explicit true.
      set(key, is_on(*value) ? "true" : "false", *value);
    }
  }

  /// Returns an element count, often written as 5e8. Returns nullopt if it is invalid or "auto".
  std::optional<std::string> elements_at(const std::string& path) {
    const Value* value = at(path);
    const auto number = value == nullptr ? std::nullopt : to_double(value->text);
    if (value != nullptr && (!number || !(*number >= 0 && *number < 1e18))) {
      problem(path, *value, "must be a number of elements");
      return std::nullopt;
    }
    return number ? std::optional(fmt::format("{:.0f}", *number)) : std::nullopt;
  }
  void copy_elements(const std::string& path, const std::string& key) {
    if (const auto elements = elements_at(path)) {
      set(key, *elements, *at(path));
    }
  }

  void loss_scale() {
    for (const auto& [name, key] :
         {std::pair{"loss_scale", "fixed"},
          {"initial_scale_power", "initial_power"},
          {"loss_scale_window", "window"},
          {"hysteresis", "hysteresis"},
          {"consecutive_hysteresis", "consecutive_hysteresis"},
          {"min_loss_scale", "minimum"}}) {
      copy(std::string("fp16.") + name, std::string("precision.loss_scale.") + key);
    }
  }

  void communication_type() {
    const Value* type = at("communication_data_type");
    if (type == nullptr) {
      return;
    }
    static const std::map<std::string, const char*> kTypes = {
        {"fp32", "float32"},
        {"float32", "float32"},
        {"fp16", "float16"},
        {"float16", "float16"},
        {"half", "float16"},
        {"bf16", "bfloat16"},
        {"bfp16", "bfloat16"},
        {"bfloat16", "bfloat16"}};
    const auto found = kTypes.find(lower_case(type->text));
    if (found == kTypes.end()) {
      problem("communication_data_type", *type, "must be fp32, fp16 or bf16");
    } else {
      set("precision.reduce_type", found->second, *type);
    }
  }

  /// Converts reduce_bucket_size from elements to MiB of the reduction type.
  void bucket_size(const Value& zero) {
    const auto elements = elements_at("zero_optimization.reduce_bucket_size");
    if (!elements) {
      return;
    }
    const auto is_on_in = [&](const char* ours, const char* theirs) {
      const Value* given = at(theirs);
      const Value* own = context_.tree.find(split_path(ours));
      return given != nullptr ? is_on(*given) : own != nullptr && is_on(*own);
    };
    const bool half = is_on_in("training.bf16", "bf16.enabled") ||
                      is_on_in("training.bf16", "bfloat16.enabled") ||
                      is_on_in("training.fp16", "fp16.enabled");
    const double megabytes = to_double(*elements).value_or(0) * (half ? 2 : 4) / (1024.0 * 1024.0);
    set("training.ddp_bucket_cap_mb",
        fmt::format("{:.6g}", megabytes),
        *zero.find("reduce_bucket_size"));
  }

  void zero() {
    const Value* zero = at("zero_optimization");
    if (zero == nullptr) {
      return;
    }
    if (!zero->is_map()) {
      set("parallel.zero_stage", is_on(*zero) ? "1" : "0", *zero);
      return;
    }
    copy("zero_optimization.stage", "parallel.zero_stage");
    for (const std::string prefix : {"zero_optimization.stage3_", "zero_optimization."}) {
      copy_elements(prefix + "param_persistence_threshold", "parallel.persistence_threshold");
      copy_elements(prefix + "prefetch_bucket_size", "parallel.prefetch_elements");
    }
    if (const Value* size = at("zero_optimization.zero_hpz_partition_size");
        size != nullptr && size->text != "1") {  // 1 disables it
      set("parallel.shard_ranks", size->text, *size);
    }
    copy("zero_optimization.offload_optimizer.ratio", "parallel.offload_optimizer.ratio");
    bucket_size(*zero);
    for (const std::string kind : {"offload_optimizer", "offload_param"}) {
      copy("zero_optimization." + kind + ".device", "parallel." + kind + ".device");
      copy("zero_optimization." + kind + ".nvme_path", "parallel." + kind + ".path");
    }
    for (const auto& [old, key] :
         {std::pair{"cpu_offload", "parallel.offload_optimizer.device"},
          {"cpu_offload_param", "parallel.offload_param.device"},
          {"cpu_offload_params", "parallel.offload_param.device"}}) {
      if (const Value* value = zero->find(old); value != nullptr && is_on(*value)) {
        set(key, "cpu", *value);
      }
    }
  }

  void optimizer() {
    const Value* type = at("optimizer.type");
    if (type != nullptr) {
      const std::string name = lower_case(type->text);
      const Value* decoupled = at("optimizer.params.adam_w_mode");
      const Value* decay = at("optimizer.params.weight_decay");
      const bool decays = decay == nullptr || to_double(decay->text).value_or(1) != 0;
      if (name == "adam" && decoupled != nullptr && !is_on(*decoupled) && decays) {
        problem(
            "optimizer.params.adam_w_mode",
            *decoupled,
            "Adam with weight decay in the gradient is not supported",
            "remove it: DeepSpeed's Adam uses decoupled weight decay, as AdamW does");
      } else if (name == "lion") {
        set("training.optim", "lion_32bit", *type);
      } else if (name == "sgd") {
        set("training.optim", "sgd", *type);
      } else if (name != "adam" && name != "adamw") {
        problem("optimizer.type", *type, "is not supported", "use AdamW");
      }
      warn_of_optimizer(*type);
    }
    copy("optimizer.params.lr", "training.learning_rate");
    copy("optimizer.params.eps", "training.adam_epsilon");
    copy("optimizer.params.weight_decay", "training.weight_decay");
    if (const Value* betas = at("optimizer.params.betas")) {
      if (!betas->is_list() || betas->items.size() != 2) {
        problem("optimizer.params.betas", *betas, "must be two numbers");
      } else {
        merge_at(settings_, {"training", "adam_beta1"}, betas->items[0]);
        merge_at(settings_, {"training", "adam_beta2"}, betas->items[1]);
      }
    }
  }

  /// Warns where DeepSpeed's optimizer would have other values: it decays every parameter, and it
  /// has defaults of its own for what its section lacks ("auto" is not lacking).
  void warn_of_optimizer(const Value& type) {
    const std::string section = "optimizer.params.";
    const Value* const decay = at(section + "weight_decay");
    if (decay != nullptr && to_double(decay->text).value_or(0) != 0) {
      context_.warnings.push_back(fmt::format(
          "DeepSpeed's {}weight_decay ({}) does not apply to biases and norms; DeepSpeed decays "
          "all "
          "parameters",
          section,
          describe(decay->origin)));
    }
    struct Figure {
      const char* name;
      const char* key;
      double of_deepspeed;
    };
    constexpr Figure kFigures[] = {
        {"lr", "training.learning_rate", 1e-3},
        {"betas", "training.adam_beta1", 0.9},
        {"betas", "training.adam_beta2", 0.999},
        {"eps", "training.adam_epsilon", 1e-8},
        {"weight_decay", "training.weight_decay", 0}};
    std::vector<std::string> others;
    for (const Figure& figure : kFigures) {
      const Value* const value = context_.tree.find(split_path(figure.key));
      const bool lacks = file_.find(split_path(section + figure.name)) == nullptr;
      if (lacks && value != nullptr &&
          to_double(value->text).value_or(figure.of_deepspeed) != figure.of_deepspeed) {
        others.push_back(
            fmt::format("{} ({}; DeepSpeed {:g})", figure.key, value->text, figure.of_deepspeed));
      }
    }
    if (!others.empty()) {
      context_.warnings.push_back(fmt::format(
          "DeepSpeed's optimizer ({}) lacks values that are then taken from the configuration: {}",
          describe(type.origin),
          fmt::join(others, ", ")));
    }
  }

  /// Reports a nonzero value. The warmup always starts at 0.
  void must_be_zero(const std::string& path) {
    const Value* value = at(path);
    if (value != nullptr && to_double(value->text).value_or(1) != 0) {
      problem(path, *value, "the warmup always starts at 0");
    }
  }

  void scheduler() {
    const Value* type = at("scheduler.type");
    if (type == nullptr) {
      return;
    }
    const std::string params = "scheduler.params.";
    const std::string name = type->text;
    std::vector<std::string> allowed = {
        "warmup_num_steps",
        "warmup_type",
        "warmup_min_lr",
        "warmup_max_lr",
        "last_batch_iteration"};
    if (name == "WarmupLR") {
      set("training.lr_scheduler_type", "constant_with_warmup", *type);
    } else if (name == "WarmupDecayLR") {
      set("training.lr_scheduler_type", "linear", *type);
      allowed.emplace_back("total_num_steps");
    } else if (name == "WarmupCosineLR") {
      set("training.lr_scheduler_type", "cosine_with_min_lr", *type);
      const Value* least = at(params + "cos_min_ratio");
      set("training.lr_scheduler_kwargs.min_lr_rate",
          least == nullptr ? "1e-4" : least->text,
          least == nullptr ? *type : *least);
      must_be_zero(params + "warmup_min_ratio");
      allowed = {
          "total_num_steps",
          "warmup_num_steps",
          "warmup_type",
          "warmup_min_ratio",
          "cos_min_ratio",
          "last_batch_iteration"};
    } else {
      problem(
          "scheduler.type",
          *type,
          "is not supported",
          "use WarmupLR, WarmupDecayLR or WarmupCosineLR, or training.lr_scheduler_type");
      return;
    }
    check_scheduler_params(allowed);
    must_be_zero(params + "warmup_min_lr");
    copy(params + "warmup_max_lr", "training.learning_rate");
    copy(params + "total_num_steps", "training.max_steps");
    warm_up(*type);
  }

  void check_scheduler_params(const std::vector<std::string>& allowed) {
    const Value* params = at("scheduler.params");
    if (params == nullptr) {
      return;
    }
    for (const Entry& entry : params->entries) {
      if (std::find(allowed.begin(), allowed.end(), entry.name) == allowed.end()) {
        context_.problems.add(
            "DeepSpeed's scheduler.params." + entry.name,
            entry.value.origin,
            "the schedule does not use it." + did_you_mean(entry.name, allowed));
      }
    }
  }

  void warm_up(const Value& type) {
    const std::string params = "scheduler.params.";
    const Value* steps = file_.find(split_path(params + "warmup_num_steps"));
    if (steps == nullptr) {
      set("training.warmup_steps", "1000", type);
    } else if (!is_auto(*steps)) {
      merge_at(settings_, {"training", "warmup_steps"}, *steps);
    }
    const Value* form = at(params + "warmup_type");
    if (form != nullptr && lower_case(form->text) == "linear") {
      return;
    }
    context_.warnings.push_back(fmt::format(
        "DeepSpeed's scheduler.params.warmup_type ({}) is log: Lockstep's warmup is linear, not "
        "logarithmic",
        describe(form == nullptr ? type.origin : form->origin)));
  }

  const Value& file_;
  const DeepspeedContext& context_;
  Value settings_;
  std::map<std::string, std::vector<std::string>> idle_;  // ignored keys, by reason
};

/// Decodes standard or URL-safe base64. Returns nullopt for invalid input.
std::optional<std::string> from_base64(std::string_view text) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  for (const char letter : text) {
    static constexpr std::string_view kLetters =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    const char plain = letter == '+' ? '-' : letter == '/' ? '_' : letter;
    const size_t index = kLetters.find(plain);
    if (index == std::string_view::npos) {
      return std::nullopt;
    }
    bits = (bits << 6) | static_cast<uint32_t>(index);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>((bits >> count) & 0xff);
    }
  }
  return bytes.starts_with('{') ? std::optional(bytes) : std::nullopt;
}

}  // namespace

Value read_deepspeed(const Value& value, Problems& problems) {
  if (value.is_null() || (value.is_scalar() && value.text.empty())) {
    return Value::null();
  }
  if (value.is_map()) {
    return value;
  }
  try {
    if (value.is_scalar() && value.text.starts_with('{')) {
      return parse_json_with_comments(value.text, "training.deepspeed");
    }
    std::error_code ignored;
    if (value.is_scalar() && value.text.size() < 4096 &&
        std::filesystem::exists(value.text, ignored)) {
      return read_config_file(value.text);
    }
    if (const auto text = value.is_scalar() ? from_base64(value.text) : std::nullopt) {
      return parse_json_with_comments(*text, "training.deepspeed (base64)");
    }
  } catch (const Error& error) {
    problems.add("training.deepspeed", value.origin, error.message(), error.remedy());
    return Value::null();
  }
  problems.add(
      "training.deepspeed",
      value.origin,
      fmt::format("{} is neither a file, JSON nor base64-encoded JSON", short_text(value)));
  return Value::null();
}

Value deepspeed_settings(const Value& file, const DeepspeedContext& context) {
  if (!file.is_map()) {
    if (!file.is_null()) {
      context.problems.add("training.deepspeed", file.origin, "must be a map of keys");
    }
    return Value::map();
  }
  return DeepspeedReader(file, context).read();
}

}  // namespace lockstep::config
