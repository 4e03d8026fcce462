// FSDP's and parallelism_config's keys as keys of ours.
#include "base/format.h"
#include "config/compat/accelerate.h"
#include "config/compat/answers.h"
#include "config/core/scalar.h"

namespace lockstep::config {

void answer_sharding_strategy(
    const AnswerTarget& target, const std::string& name, const Value& value) {
  // The names, and the numbers that older files have.
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
        "there is no such strategy",
        "use FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
    return;
  }
  target.set("parallel.zero_stage", found->second, value);
  if (text.find("hybrid") != std::string::npos || text == "4" || text == "5") {
    target.set("parallel.shard_ranks", "-1", value);  // replicas across machines
  }
}

/// FSDP 2: true is ZeRO stage 3, false is stage 2. FSDP 1 wrote its strategy here in some versions.
void reshard_after_forward(
    const AnswerTarget& target, const std::string& name, const Value& value) {
  const auto word = to_bool(value.text);
  if (!word) {
    answer_sharding_strategy(target, name, value);
  } else if (target.settings.find(Path{"parallel", "zero_stage"}) == nullptr) {
    target.set("parallel.zero_stage", *word ? "3" : "2", value);
  }
}

void offload_params(const AnswerTarget& target, const std::string&, const Value& value) {
  if (is_on(value)) {
    target.set("parallel.offload_param.device", "cpu", value);
    target.set("parallel.offload_optimizer.device", "cpu", value);
  }
}

const Answers& fsdp_answers() {
  static const Answer kUnits = nothing();  // the units are the model's blocks
  static const Answers kAnswers = {
      {"version", nothing()},
      {"sharding_strategy", answer_sharding_strategy},
      {"reshard_after_forward", reshard_after_forward},
      {"offload_params", offload_params},
      {"activation_checkpointing",
       [](const AnswerTarget& target, const std::string&, const Value& value) {
         target.set("training.gradient_checkpointing", is_on(value) ? "true" : "false", value);
       }},
      {"activation_checkpointing_offload", refuses_true("activations are not offloaded yet")},
      {"backward_prefetch",
       [](const AnswerTarget& target, const std::string&, const Value& value) {
         if (lower_case(value.text) == "no_prefetch") {
           target.set("parallel.prefetch_units", "0", value);
         }
       }},
      {"backward_prefetch_policy", nothing()},
      {"forward_prefetch", nothing()},
      {"limit_all_gathers", nothing()},
      {"auto_wrap_policy", kUnits},
      {"min_num_params", kUnits},
      {"transformer_layer_cls_to_wrap", kUnits},
      {"transformer_cls_to_wrap", kUnits},
      {"ignored_modules", nothing()},
      {"state_dict_type", nothing()},  // a checkpoint is always one model folder
      {"use_orig_params", nothing()},
      {"cpu_ram_efficient_loading", nothing()},  // each rank reads its slices of mapped files
      {"sync_module_states", nothing()},
      {"mixed_precision_policy", warns("the type is that of training.bf16")},
      {"xla", refuses_true("there is no XLA")},
      {"xla_fsdp_v2", refuses_true("there is no XLA")},
      {"xla_fsdp_grad_ckpt", refuses_true("there is no XLA")},
      {"xla_fsdp_settings", nothing()},
  };
  return kAnswers;
}

void shard_size(const AnswerTarget& target, const std::string&, const Value& value) {
  if (!is_one(value)) {
    target.set("parallel.zero_stage", "3", value);
  }
}

const Answers& parallelism_answers() {
  static const Answers kAnswers = {
      {"dp_replicate_size", nothing()},  // answered with dp_shard_size: see answer_parallelism()
      {"dp_shard_size", shard_size},
      {"tp_size", copies("parallel.tensor")},
      {"cp_size", copies("parallel.context")},
      {"sp_size",
       [](const AnswerTarget& target, const std::string&, const Value& value) {
         if (!is_one(value)) {
           target.set("parallel.context", value.text, value);
           target.set("parallel.context_attention", "ulysses", value);
         }
       }},
      {"cp_comm_strategy", nothing()},
      {"cp_backend", nothing()},
      {"sp_backend", nothing()},
      {"sp_seq_length", nothing()},
      {"sp_seq_length_is_variable", nothing()},
      {"sp_attn_implementation", nothing()},
      {"cp_handler", nothing()},
      {"sp_handler", nothing()},
      {"tp_handler", nothing()},
  };
  return kAnswers;
}

void answer_parallelism(
    const Value& map, const std::string& prefix_of_names, const AnswerTarget& target) {
  answer_entries(map, parallelism_answers(), prefix_of_names, target);
  const Value* replicate = map.find(prefix_of_names + "dp_replicate_size");
  const Value* shard = map.find(prefix_of_names + "dp_shard_size");
  if (replicate != nullptr && shard != nullptr && !is_one(*replicate) && !is_one(*shard)) {
    target.set("parallel.shard_ranks", shard->text, *shard);
  }
}

}  // namespace lockstep::config
