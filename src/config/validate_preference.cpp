// Validates the section preference.
#include <algorithm>

#include "base/format.h"
#include "config/core/checker.h"
#include "config/validate.h"

namespace lockstep::config {
namespace {

/// Returns the loss types of an objective; empty if it has only one.
std::vector<std::string> losses_of(const std::string& objective) {
  if (objective == "dpo") {
    return {
        "sigmoid",
        "hinge",
        "ipo",
        "exo_pair",
        "nca_pair",
        "robust",
        "bco_pair",
        "sppo_hard",
        "apo_zero",
        "apo_down",
        "discopop",
        "sigmoid_norm"};
  }
  if (objective == "cpo") {
    return {"sigmoid", "hinge", "ipo", "simpo"};
  }
  if (objective == "kto") {
    return {"kto", "apo_zero_unpaired"};
  }
  return {};
}

/// Reports keys that are set but not used by the objective, or by a reward model ("reward").
void check_use(const std::string& objective, Checker& check) {
  struct Use {
    const char* key;
    std::vector<std::string> objectives;
  };
  static const std::vector<Use> kUses{
      {"beta", {"dpo", "ipo", "simpo", "cpo", "orpo", "kto"}},
      {"loss_type", {"dpo", "cpo", "kto"}},
      {"label_smoothing", {"dpo", "cpo", "simpo"}},
      {"reference_free", {"dpo", "ipo"}},
      {"rpo_alpha", {"dpo"}},
      {"discopop_tau", {"dpo"}},
      {"simpo_gamma", {"simpo", "cpo"}},
      {"cpo_alpha", {"cpo"}},
      {"desirable_weight", {"kto"}},
      {"undesirable_weight", {"kto"}},
      {"truncation_mode", {"dpo", "ipo", "simpo", "cpo", "orpo", "kto"}}};
  const auto is_read = [&](const Use& use) {
    return std::ranges::count(use.objectives, objective) > 0;
  };
  const bool is_reward = objective == "reward";
  std::vector<std::string> taken;
  if (is_reward) {
    taken.emplace_back("center_rewards_coefficient");
  }
  for (const Use& use : kUses) {
    if (is_read(use)) {
      taken.emplace_back(use.key);
    }
  }
  for (const Use& use : kUses) {
    const std::string key = fmt::format("preference.{}", use.key);
    // The config.yaml of a run also contains defaults, which the user did not request.
    if (!is_read(use) && check.origin(key).source == Origin::Source::kCommandLine) {
      check.fail(
          key,
          fmt::format(
              "not used with {}",
              is_reward ? "task.type=reward_model" : "preference.objective=" + objective),
          fmt::format(
              "remove it; it is used with {}, and {} uses {}",
              fmt::join(use.objectives, ", "),
              is_reward ? "a reward model" : objective,
              fmt::join(taken, ", ")));
    }
  }
}

void check_loss(const PreferenceSection& section, Checker& check) {
  const std::string loss = section.loss_type.value_or("sigmoid");
  const std::vector<std::string> losses = losses_of(section.objective);
  if (section.loss_type && !losses.empty() && std::ranges::find(losses, loss) == losses.end()) {
    check.fail(
        "preference.loss_type",
        fmt::format("{} is not a loss of preference.objective={}", loss, section.objective),
        fmt::format("use one of {}", fmt::join(losses, ", ")));
  }
  const double smoothing = section.label_smoothing;
  check.require(
      smoothing >= 0 && smoothing < 0.5, "preference.label_smoothing", "at least 0 and below 0.5");
  static constexpr std::string_view kSmoothed[] = {"sigmoid", "exo_pair", "robust"};
  const bool smooths = section.objective != "dpo" && section.objective != "cpo"
                           ? section.objective == "simpo"
                           : std::ranges::find(kSmoothed, loss) != std::end(kSmoothed);
  if (smoothing != 0 && !smooths && loss != "simpo") {
    check.fail(
        "preference.label_smoothing",
        fmt::format("has no effect with preference.loss_type={}", loss),
        fmt::format("remove it; only {} use it", fmt::join(kSmoothed, ", ")));
  }
  if (check.origin("preference.discopop_tau").source == Origin::Source::kCommandLine &&
      loss != "discopop") {
    check.fail(
        "preference.discopop_tau",
        fmt::format("has no effect with preference.loss_type={}", loss),
        "remove it, or set preference.loss_type=discopop");
  }
  if (loss == "exo_pair" && smoothing <= 0) {
    check.fail(
        "preference.label_smoothing",
        "the exo_pair loss divides by it",
        "set it above 0; the paper uses 0.001");
  }
}

void check_preference_numbers(const PreferenceSection& section, Checker& check) {
  const auto above_0 = [](double value) { return std::isfinite(value) && value > 0; };
  const auto from_0 = [](double value) { return std::isfinite(value) && value >= 0; };
  check.require(above_0(section.beta.value_or(1)), "preference.beta", "above 0");
  check.require(above_0(section.discopop_tau), "preference.discopop_tau", "above 0");
  check.require(std::isfinite(section.simpo_gamma), "preference.simpo_gamma", "a number");
  check.require(from_0(section.cpo_alpha), "preference.cpo_alpha", "at least 0");
  check.require(from_0(section.rpo_alpha.value_or(0)), "preference.rpo_alpha", "at least 0");
  check.require(from_0(section.desirable_weight), "preference.desirable_weight", "at least 0");
  check.require(from_0(section.undesirable_weight), "preference.undesirable_weight", "at least 0");
  check.require(
      section.max_prompt_length.value_or(1) >= 1, "preference.max_prompt_length", "at least 1");
  check.require(
      section.precompute_ref_batch_size.value_or(1) >= 1,
      "preference.precompute_ref_batch_size",
      "at least 1");
}

void check_rows(const Config& config, Checker& check) {
  const auto is_typed = [&](const char* key) {
    return check.origin(key).source == Origin::Source::kCommandLine;
  };
  if (is_typed("data.packing") && config.data.packing == "concatenate") {
    check.fail("data.packing", "concatenation would cut off answers", "use documents or none");
  }
  if (has_prompt(config.data) && is_typed("data.prompt")) {
    check.fail("data.prompt", "not used with preference data", "remove it");
  }
}

}  // namespace

void validate_preference(const Config& config, Checker& check, std::vector<std::string>& warnings) {
  const PreferenceSection& section = config.preference;
  const auto is_typed = [&](const std::string& key) {
    return check.origin(key).source == Origin::Source::kCommandLine;
  };
  const bool is_reward = config.task.type == "reward_model";
  if (section.center_rewards_coefficient && !is_reward) {
    check.fail(
        "preference.center_rewards_coefficient",
        "only used with task.type=reward_model",
        "set it, or remove this key");
  }
  if (config.task.type != "preference") {
    if (is_typed("preference.objective")) {
      check.fail(
          "preference.objective",
          "only used with task.type=preference",
          "set it, or remove this key");
    }
    if (is_reward) {
      const double center = section.center_rewards_coefficient.value_or(0);
      check.require(
          std::isfinite(center) && center >= 0,
          "preference.center_rewards_coefficient",
          "at least 0");
      check_rows(config, check);
      check_use("reward", check);
    }
    return;
  }
  check_rows(config, check);
  check_preference_numbers(section, check);
  check_loss(section, check);
  check_use(section.objective, check);
  if (!section.precompute_ref_log_probs) {
    warnings.push_back(
        "preference.precompute_ref_log_probs=false has no effect: reference scores are always "
        "computed once before training, so no second model is in memory");
  }
}

}  // namespace lockstep::config
