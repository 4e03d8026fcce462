// TRL's configuration files. Their names are Lockstep's too (core/trl_keys.h); only the defaults
// and the task depend on the program.
#include "config/compat/foreign.h"
#include "config/core/scalar.h"

namespace lockstep::config {
namespace {

constexpr ForeignPair kTrlSupervised[] = {
    {"training.learning_rate", "2e-05"},
    {"training.gradient_checkpointing", "true"},
    {"training.logging_steps", "10"},
    {"data.sequence_length", "1024"},
    {"training.packing", "false"},
    {"training.assistant_only_loss", "false"},
};
constexpr ForeignPair kTrlPreference[] = {
    {"training.learning_rate", "1e-06"},
    {"training.gradient_checkpointing", "true"},
    {"training.logging_steps", "10"},
    {"data.sequence_length", "1024"},
};
constexpr ForeignPair kTrlReward[] = {
    {"training.learning_rate", "0.0001"},
    {"training.gradient_checkpointing", "true"},
    {"training.logging_steps", "10"},
    {"data.sequence_length", "1024"},
};

std::span<const ForeignPair> trl_defaults(const Value& settings) {
  const std::string task = text_in(settings, {"task", "type"});
  if (task == "reward_model") {
    return kTrlReward;
  }
  return task == "preference" ? std::span<const ForeignPair>(kTrlPreference)
                              : std::span<const ForeignPair>(kTrlSupervised);
}

/// Sets the task, which TRL's commands (`trl sft`, `trl dpo`, ...) select and the file does not.
void finish_trl(const Value& file, const RuleTarget& target) {
  const auto has = [&](const char* name) { return !text_in(file, {name}).empty(); };
  const std::string loss = text_in(file, {"loss_type"}) + text_in(file, {"loss_type", "0"});
  const bool is_kto = has("desirable_weight") || has("undesirable_weight") || loss == "kto";
  const bool has_pair_loss =
      !loss.empty() && loss != "nll" && loss != "chunked_nll" && loss != "dft";
  if (target.settings.find(Path{"task", "type"}) == nullptr) {
    if (has("center_rewards_coefficient")) {
      target.set("task.type", "reward_model", file);
    } else if (is_kto || has_pair_loss || has("beta") || has("precompute_ref_log_probs")) {
      target.set("task.type", "preference", file);
    }
  }
  if (is_kto) {
    target.set("preference.objective", "kto", file);
  }
  if (!to_bool(text_in(file, {"use_peft"})).value_or(false)) {
    drop_adapter(target, "use_peft is not set");
  }
  if (!has("bf16") && !to_bool(text_in(file, {"fp16"})).value_or(false)) {
    target.set("training.bf16", "true", file);
  }
}

}  // namespace

const ForeignProgram kTrl{
    .name = "TRL",
    .rules = {},
    .defaults = trl_defaults,
    .finish = finish_trl,
};

}  // namespace lockstep::config
