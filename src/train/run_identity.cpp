// Compares the data and settings in a checkpoint with those of the run.
#include "train/run_identity.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "config/tasks.h"
#include "train/weights/adapters.h"
#include "train/weights/quantization.h"

namespace lockstep::train {
namespace {

constexpr const char* kSequences = "sequences a step";

using nlohmann::json;

/// Converts values of older checkpoints to the current format.
json in_todays_words(const std::string& name, const json& value) {
  if (name == "data.packing" && value.is_boolean()) {
    return value.get<bool>() ? "concatenate" : "none";
  }
  return value;
}

std::vector<std::string> differences(const json& there, const json& here, const char* part) {
  std::vector<std::string> found;
  if (!there.contains(part) || !there.at(part).is_object()) {
    return found;
  }
  for (const auto& [name, value] : here.at(part).items()) {
    if (!there.at(part).contains(name)) {
      continue;
    }
    const json other = in_todays_words(name, there.at(part).at(name));
    if (other != value) {
      found.push_back(fmt::format("{}: {} there, {} here", name, other.dump(), value.dump()));
    }
  }
  return found;
}

/// Returns the entries as an array of pairs, because their order matters.
json by_name(const config::NumberMap& numbers) {
  json pairs = json::array();
  for (const auto& [pattern, number] : numbers) {
    pairs.push_back({pattern, number});
  }
  return pairs;
}

/// Returns the properties of the sources that determine which source a sample comes from. Their
/// names are not among them.
json weights_of(const std::vector<data::MixedRows>& sources) {
  json list = json::array();
  for (const data::MixedRows& source : sources) {
    list.push_back(
        {{"sequences", source.rows->size()},
         {"weight", source.weight},
         {"max_epochs", source.max_epochs ? json(*source.max_epochs) : json(nullptr)}});
  }
  return list;
}

/// Adds the keys of the configured optimizer.
void add_optimizer(const config::TrainingSection& training, nlohmann::ordered_json& settings) {
  if (training.optim == "muon") {
    settings["training.muon_learning_rate"] =
        training.muon_learning_rate.value_or(training.learning_rate);
    settings["training.muon_momentum"] = training.muon_momentum;
    settings["training.muon_nesterov"] = training.muon_nesterov;
    settings["training.muon_ns_steps"] = training.muon_ns_steps;
    settings["training.muon_adjust_lr_fn"] = training.muon_adjust_lr_fn;
  }
  if (training.optim == "ademamix") {
    settings["training.ademamix_beta3"] = training.ademamix_beta3;
    settings["training.ademamix_alpha"] = training.ademamix_alpha;
    settings["training.ademamix_t_alpha"] = training.ademamix_t_alpha;
    settings["training.ademamix_t_beta3"] = training.ademamix_t_beta3;
  }
}

/// Adds the keys of the section that affect the computation.
void add_preference(const config::PreferenceSection& section, nlohmann::ordered_json& settings) {
  const auto number = [](const std::optional<double>& value) {
    return value ? json(*value) : json(nullptr);
  };
  settings["preference.objective"] = section.objective;
  settings["preference.loss_type"] = section.loss_type.value_or("");
  settings["preference.beta"] = number(section.beta);
  settings["preference.label_smoothing"] = section.label_smoothing;
  settings["preference.reference_free"] = section.reference_free;
  settings["preference.rpo_alpha"] = number(section.rpo_alpha);
  settings["preference.discopop_tau"] = section.discopop_tau;
  settings["preference.simpo_gamma"] = section.simpo_gamma;
  settings["preference.cpo_alpha"] = section.cpo_alpha;
  settings["preference.desirable_weight"] = section.desirable_weight;
  settings["preference.undesirable_weight"] = section.undesirable_weight;
  settings["preference.center_rewards_coefficient"] = number(section.center_rewards_coefficient);
  settings["preference.disable_dropout"] = section.disable_dropout;
}

void add_unlearning(const config::UnlearningSection& section, nlohmann::ordered_json& settings) {
  const auto number = [](const std::optional<double>& value) {
    return value ? json(*value) : json(nullptr);
  };
  settings["unlearning.method"] = section.method.value_or("");
  settings["unlearning.anchor"] = section.anchor;
  settings["unlearning.gamma"] = number(section.gamma);
  settings["unlearning.alpha"] = number(section.alpha);
  settings["unlearning.beta"] = number(section.beta);
  settings["unlearning.beta1"] = section.beta1;
  settings["unlearning.beta2"] = section.beta2;
  settings["unlearning.delta"] = section.delta;
  settings["unlearning.retain_loss"] = config::retain_loss_of(section);
  if (config::method_of(section).steers) {
    settings["unlearning.module_regex"] = section.module_regex;
    settings["unlearning.steering_coeff"] = section.steering_coeff;
    settings["unlearning.trainable_params_regex"] =
        fmt::format("{}", fmt::join(section.trainable_params_regex, ", "));
  }
  if (config::method_of(section).levels) {
    settings["unlearning.retain_loss_eps"] = number(section.retain_loss_eps);
    settings["unlearning.primal_dual"] = section.primal_dual;
    settings["unlearning.dual_step_size"] = section.dual_step_size;
    settings["unlearning.dual_update_upon"] = section.dual_update_upon;
    settings["unlearning.dual_warmup_epochs"] = section.dual_warmup_epochs;
  }
  settings["unlearning.compatibility"] = section.compatibility;
}

}  // namespace

nlohmann::ordered_json identity_of(const Job& job) {
  const config::TrainingSection& training = job.config.training;
  const data::SequenceView& rows = *job.datasets.train;
  nlohmann::ordered_json settings{
      {"training.seed", training.seed},
      {"training.data_seed", training.data_seed.value_or(training.seed)},
      {"training.optim", training.optim},
      {"training.learning_rate", training.learning_rate},
      {"training.weight_decay", training.weight_decay},
      {"training.adam_beta1", training.adam_beta1},
      {"training.adam_beta2", training.adam_beta2},
      {"training.adam_epsilon", training.adam_epsilon},
      {"training.learning_rates", by_name(training.learning_rates)},
      {"training.weight_decays", by_name(training.weight_decays)},
      {"training.layer_wise_learning_rate_decay", training.layer_wise_learning_rate_decay},
      {"training.max_grad_norm", training.max_grad_norm},
      {"training.label_smoothing_factor", training.label_smoothing_factor},
      {"training.neftune_noise_alpha", training.neftune_noise_alpha.value_or(0)},
      {"training.average_tokens_across_devices", training.average_tokens_across_devices},
      {"training.lr_scheduler_type", training.lr_scheduler_type},
      {"training.warmup_steps", training.warmup_steps},
      {"training.warmup_epochs", training.warmup_epochs.value_or(0)},
      {"training.train_sampling_strategy", training.train_sampling_strategy},
      {"training.dataloader_drop_last", training.dataloader_drop_last},
      {"training.bf16", training.bf16},
      {"training.fp16", training.fp16},
      {"precision.fp8", job.config.precision.fp8},
      {kSequences, job.global_batch}};
  if (rows.encoder() && rows.encoder()->masking) {
    settings["data.mlm_probability"] = job.config.data.mlm_probability;
    settings["data.mask_replace_prob"] = job.config.data.mask_replace_prob;
    settings["data.random_replace_prob"] = job.config.data.random_replace_prob;
    settings["data.whole_word_mask"] = job.config.data.whole_word_mask;
  }
  nlohmann::ordered_json identity{
      {"data",
       {{"the training data's hash", rows.content_hash()},
        {"the tokenizer's hash", job.tokenizer->fingerprint()},
        {"sequences", rows.size()},
        {"data.sequence_length", rows.length()},
        {"data.packing", data::name_of(rows.packing())},
        {"data.long_documents", job.config.data.long_documents}}},
      {"settings", std::move(settings)}};
  if (!rows.sources().empty()) {
    identity["data"]["data.mixture"] = weights_of(rows.sources());
  }
  if (const config::PrecisionSection& precision = job.config.precision; precision.fp8 != "none") {
    identity["settings"]["precision.num_layers_at_start_in_bf16"] =
        precision.num_layers_at_start_in_bf16;
    identity["settings"]["precision.num_layers_at_end_in_bf16"] =
        precision.num_layers_at_end_in_bf16;
  }
  add_optimizer(training, identity["settings"]);
  if (job.adapters != nullptr) {
    identity["settings"]["lora"] = adapter_config(*job.adapters, job.model->model().config());
  }
  if (const auto& packed = job.model->model().config().quantization) {
    identity["settings"]["quantization"] = text_of(*packed);
  }
  if (rows.has_classes()) {
    identity["data"]["the labels"] = fmt::format("{}", fmt::join(job.task.head.labels, ", "));
    identity["settings"]["task.class_weights"] =
        fmt::format("{}", fmt::join(job.judging.loss.weights, ", "));
    identity["settings"]["task.focal_gamma"] = job.judging.loss.focal_gamma;
    identity["data"]["the classes' hash"] = hash_hex(std::as_bytes(std::span(rows.classes())));
    if (!rows.outputs().empty()) {
      identity["data"]["the problem"] = model::name_of(job.task.head.problem);
      identity["data"]["the outputs' hash"] = hash_hex(std::as_bytes(std::span(rows.outputs())));
    }
  }
  if (job.written_labels) {
    identity["data"]["the labels"] = fmt::format("{}", fmt::join(job.written_labels->labels, ", "));
  }
  if (rows.has_roles()) {
    identity["data"]["the answers' labels' hash"] =
        hash_hex(std::as_bytes(std::span(rows.answers().roles)));
    if (rows.answers().partners) {
      add_unlearning(job.config.unlearning, identity["settings"]);
    } else {
      add_preference(job.config.preference, identity["settings"]);
    }
  }
  return identity;
}

IdentityDifferences compare_identities(const json& there, const json& here) {
  return {differences(there, here, "data"), differences(there, here, "settings")};
}

namespace {

/// Returns a hint if the number of sequences per step differs, as on another number of ranks, and
/// gradient accumulation can keep it.
std::string same_batch(int64_t accumulation, const json& there, const json& here) {
  const auto sequences = [](const json& identity) {
    const json settings = identity.value("settings", json::object());
    return settings.is_object() ? settings.value(kSequences, int64_t{0}) : int64_t{0};
  };
  const int64_t saved = sequences(there), now = sequences(here);
  const int64_t chunks = saved * accumulation;
  return saved <= 0 || saved == now || now <= 0 || chunks % now != 0
             ? ""
             : fmt::format(
                   "; gradient_accumulation_steps={} keeps {} sequences per step",
                   chunks / now,
                   saved);
}

}  // namespace

void check_identity(
    const Job& job, const RankContext& rank_context, const json& state, const std::string& source) {
  const auto warn = [&](const std::string& text) {
    if (rank_context.is_first()) {
      log_warning("{}", text);
    }
  };
  const auto there = state.find("identity");
  if (there == state.end() || !there->is_object()) {
    warn(fmt::format(
        "{} was saved without its data's identity: cannot check that the data are the same",
        source));
    return;
  }
  const json here = identity_of(job);
  const IdentityDifferences found = compare_identities(*there, here);
  if (!found.settings.empty()) {
    warn(fmt::format(
        "{} was saved with other settings: {}{}",
        source,
        fmt::join(found.settings, "; "),
        same_batch(job.config.training.gradient_accumulation_steps, *there, here)));
  }
  if (found.data.empty()) {
    return;
  }
  const std::string text =
      fmt::format("{} was trained on other data: {}", source, fmt::join(found.data, "; "));
  if (job.config.checkpoint.allow_other_data || job.config.training.ignore_data_skip) {
    warn(text);
    return;
  }
  throw Error(
      ErrorKind::kConfig,
      text,
      "use the original data, tokenizer and sequence length; to continue with these, set "
      "training.ignore_data_skip=true (from their beginning) or checkpoint.allow_other_data=true "
      "(from the same position)");
}

}  // namespace lockstep::train
