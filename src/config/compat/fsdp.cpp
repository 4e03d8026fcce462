// Reads FSDP settings and parallelism_config as configuration keys.
#include "config/compat/fsdp.h"

#include <map>

#include "base/format.h"
#include "config/compat/accelerate.h"
#include "config/core/scalar.h"
#include "config/core/settings.h"

namespace lockstep::config {
namespace {

using enum KeyRule::Kind;

void read_sharding_strategy(const RuleTarget& target, const std::string& name, const Value& value) {
  // Strategy names and the numbers used in older files.
  static const std::map<std::string, const char*> kStages = {
      {"full_shard", "3"},
      {"1", "3"},
      {"shard_grad_op", "2"},
      {"2", "2"},
      {"no_shard", "0"},
      {"3", "0"},
      {"hybrid_shard", "3"},
      {"4", "3"},
      {"hybrid_shard_zero2", "2"},
      {"_hybrid_shard_zero2", "2"},
      {"5", "2"}};
  const std::string text = lower_case(value.text);
  const auto found = kStages.find(text);
  if (found == kStages.end()) {
    target.refuse(
        name,
        value,
        "unknown strategy",
        "use FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
    return;
  }
  target.set("parallel.zero_stage", found->second, value);
  if (text.find("hybrid") != std::string::npos || text == "4" || text == "5") {
    target.set("parallel.shard_ranks", "-1", value);  // replicate across machines
  }
}

/// Reads reshard_after_forward. FSDP 2: true means ZeRO stage 3, false stage 2. Some versions of
/// FSDP 1 stored the strategy in this key.
void read_resharding(const RuleTarget& target, const std::string& name, const Value& value) {
  const auto word = to_bool(value.text);
  if (!word) {
    read_sharding_strategy(target, name, value);
  } else if (target.settings.find(Path{"parallel", "zero_stage"}) == nullptr) {
    target.set("parallel.zero_stage", *word ? "3" : "2", value);
  }
}

void read_offload(const RuleTarget& target, const std::string&, const Value& value) {
  if (is_on(value)) {
    target.set("parallel.offload_param.device", "cpu", value);
    target.set("parallel.offload_optimizer.device", "cpu", value);
  }
}

void read_checkpointing(const RuleTarget& target, const std::string&, const Value& value) {
  target.set("training.gradient_checkpointing", is_on(value) ? "true" : "false", value);
}

void read_prefetch(const RuleTarget& target, const std::string&, const Value& value) {
  if (lower_case(value.text) == "no_prefetch") {
    target.set("parallel.prefetch_units", "0", value);
  }
}

constexpr KeyRule kFsdpRules[] = {
    {"version", kIgnored, "*"},
    read_by("sharding_strategy", read_sharding_strategy),
    read_by("reshard_after_forward", read_resharding),
    read_by("offload_params", read_offload),
    read_by("activation_checkpointing", read_checkpointing),
    {"activation_checkpointing_offload",
     kRefused,
     "false",
     "activation offloading is not supported yet"},
    read_by("backward_prefetch", read_prefetch),
    {"backward_prefetch_policy", kIgnored, "*"},
    {"forward_prefetch", kIgnored, "*"},
    {"limit_all_gathers", kIgnored, "*"},
    {"auto_wrap_policy", kIgnored, "*"},
    {"min_num_params", kIgnored, "*"},
    {"transformer_layer_cls_to_wrap", kIgnored, "*"},
    {"transformer_cls_to_wrap", kIgnored, "*"},
    {"ignored_modules", kIgnored, "*"},
    {"state_dict_type", kIgnored, "*"},  // a checkpoint is always one model folder
    {"use_orig_params", kIgnored, "*"},
    {"cpu_ram_efficient_loading",
     kIgnored,
     "*"},  // each rank reads its shards of memory-mapped files
    {"sync_module_states", kIgnored, "*"},
    {"mixed_precision_policy", kIgnored, "no|false", "the type is set by training.bf16"},
    {"xla", kRefused, "false", "XLA is not supported"},
    {"xla_fsdp_v2", kRefused, "false", "XLA is not supported"},
    {"xla_fsdp_grad_ckpt", kRefused, "false", "XLA is not supported"},
    {"xla_fsdp_settings", kIgnored, "*"},
};

void read_shard_size(const RuleTarget& target, const std::string&, const Value& value) {
  if (!is_one(value) && target.settings.find(Path{"parallel", "zero_stage"}) == nullptr) {
    target.set("parallel.zero_stage", "3", value);
  }
}

void read_ulysses(const RuleTarget& target, const std::string&, const Value& value) {
  if (!is_one(value)) {
    target.set("parallel.context", value.text, value);
    target.set("parallel.context_attention", "ulysses", value);
  }
}

constexpr KeyRule kParallelismRules[] = {
    {"dp_replicate_size", kIgnored, "*"},  // read together with dp_shard_size in read_parallelism()
    read_by("dp_shard_size", read_shard_size),
    {"tp_size", kRead, "", "parallel.tensor"},
    {"cp_size", kRead, "", "parallel.context"},
    read_by("sp_size", read_ulysses),
    {"cp_comm_strategy", kIgnored, "*"},
    {"cp_backend", kIgnored, "*"},
    {"sp_backend", kIgnored, "*"},
    {"sp_seq_length", kIgnored, "*"},
    {"sp_seq_length_is_variable", kIgnored, "*"},
    {"sp_attn_implementation", kIgnored, "*"},
    {"cp_handler", kIgnored, "*"},
    {"sp_handler", kIgnored, "*"},
    {"tp_handler", kIgnored, "*"},
};

}  // namespace

KeyRules fsdp_rules() {
  return kFsdpRules;
}

void read_parallelism(
    const Value& map, const std::string& prefix_of_names, const RuleTarget& target) {
  apply_rules(kParallelismRules, map, prefix_of_names, target);
  const Value* replicate = map.find(prefix_of_names + "dp_replicate_size");
  const Value* shard = map.find(prefix_of_names + "dp_shard_size");
  if (replicate != nullptr && shard != nullptr && !is_one(*replicate) && !is_one(*shard)) {
    target.set("parallel.shard_ranks", shard->text, *shard);
  }
}

Value fsdp_settings(
    const Value& fsdp,
    const Value& fsdp_config,
    Problems& problems,
    std::vector<std::string>& warnings) {
  Value settings = Value::map();
  const Value config = map_or_file(fsdp_config, "training.fsdp_config", problems);
  const RuleTarget target{settings, problems, warnings, "training.fsdp_config."};
  std::string words;
  for (const Value& item : fsdp.is_list() ? fsdp.items : std::vector<Value>{fsdp}) {
    words += ' ';
    words += lower_case(item.text);
  }
  bool on = false;
  for (size_t at = 0; at < words.size();) {
    const size_t begin = words.find_first_not_of(' ', at);
    if (begin == std::string::npos) {
      break;
    }
    const size_t end = std::min(words.find(' ', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    at = end;
    const auto truth = to_bool(word);
    if (truth) {
      on |= *truth;
    } else if (word == "auto_wrap") {
      on = true;
    } else if (word == "offload") {
      on = true;
      read_offload(target, word, Value::scalar("true", false, fsdp.origin));
    } else {
      on = true;
      Value strategy = Value::scalar(word, false, fsdp.origin);
      read_sharding_strategy({settings, problems, warnings, "training."}, "fsdp", strategy);
    }
  }
  if (on) {
    apply_rules(kFsdpRules, config, "fsdp_", target);
    if (settings.find(Path{"parallel", "zero_stage"}) == nullptr) {
      set_key(settings, "parallel.zero_stage", "3", fsdp.origin);
    }
  } else if (!config.entries.empty()) {
    warnings.push_back(fmt::format(
        "training.fsdp_config ({}) has no effect: training.fsdp is not set",
        describe(fsdp_config.origin)));
  }
  return settings;
}

Value parallelism_settings(
    const Value& config, Problems& problems, std::vector<std::string>& warnings) {
  Value settings = Value::map();
  const Value map = map_or_file(config, "training.parallelism_config", problems);
  read_parallelism(map, "", {settings, problems, warnings, "training.parallelism_config."});
  return settings;
}

}  // namespace lockstep::config
