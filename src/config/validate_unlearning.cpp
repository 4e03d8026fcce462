// Validates the section unlearning.
#include <algorithm>
#include <set>

#include "base/format.h"
#include "config/core/checker.h"
#include "config/core/choices.h"
#include "config/core/unlearning.h"
#include "config/tasks.h"
#include "config/validate.h"

namespace lockstep::config {
namespace {

bool is_typed_here(const Checker& check, const std::string& key) {
  return check.origin(key).source == Origin::Source::kCommandLine;
}

/// Reports keys that are set but not used by the method.
void check_use_by_method(const UnlearningMethod& method, Checker& check) {
  std::set<std::string_view> keys;
  for (const UnlearningMethod& each : unlearning_methods()) {
    keys.insert(each.keys.begin(), each.keys.end());
  }
  for (const std::string_view key : keys) {
    const std::string name = fmt::format("unlearning.{}", key);
    // The config.yaml of a run also contains defaults, which the user did not request.
    if (!is_typed_here(check, name) || std::ranges::find(method.keys, key) != method.keys.end()) {
      continue;
    }
    check.fail(
        name,
        fmt::format("not used with unlearning.method={}", method.name),
        method.keys.empty()
            ? fmt::format("remove it; {} has no parameters", method.name)
            : fmt::format("remove it; {} uses {}", method.name, fmt::join(method.keys, ", ")));
  }
}

void check_unlearning_numbers(const UnlearningSection& section, Checker& check) {
  const auto from_0 = [](double value) { return std::isfinite(value) && value >= 0; };
  check.require(from_0(section.gamma.value_or(0)), "unlearning.gamma", "at least 0");
  check.require(from_0(section.alpha.value_or(0)), "unlearning.alpha", "at least 0");
  check.require(
      std::isfinite(section.beta.value_or(1)) && section.beta.value_or(1) > 0,
      "unlearning.beta",
      "above 0");
  check.require(from_0(section.beta1), "unlearning.beta1", "at least 0");
  check.require(from_0(section.beta2), "unlearning.beta2", "at least 0");
  check.require(from_0(section.steering_coeff), "unlearning.steering_coeff", "at least 0");
  check.require(std::isfinite(section.delta), "unlearning.delta", "a number");
  check.require(
      from_0(section.retain_loss_eps.value_or(0)), "unlearning.retain_loss_eps", "at least 0");
  check.require(from_0(section.dual_step_size), "unlearning.dual_step_size", "at least 0");
  check.require(section.dual_warmup_epochs >= 0, "unlearning.dual_warmup_epochs", "at least 0");
  check.require(
      section.ignore_first_n_answer_tokens >= 0,
      "unlearning.ignore_first_n_answer_tokens",
      "at least 0");
  check.require(
      section.reference_batch_size.value_or(1) >= 1,
      "unlearning.reference_batch_size",
      "at least 1");
}

void check_states(const Config& config, const UnlearningMethod& method, Checker& check) {
  const UnlearningSection& section = config.unlearning;
  const std::string loss = section.retain_loss.value_or("");
  if (method.steers && (loss == "NLL" || loss == "KL")) {
    check.fail(
        "unlearning.retain_loss",
        fmt::format(
            "RMU with {} is not supported: it stops at a hidden layer and computes no logits",
            loss),
        "remove it, or set EMBED_DIFF: the distance of hidden states");
  }
  if (!method.steers && loss == "EMBED_DIFF") {
    check.fail(
        "unlearning.retain_loss",
        fmt::format("EMBED_DIFF is only used with RMU, not {}", method.name),
        "set NLL or KL");
  }
  if (method.steers && section.trainable_params_regex.empty()) {
    check.fail("unlearning.trainable_params_regex", "must not be empty", "set [.*] to train all");
  }
  if (method.steers && config.lora != LoraSection{} &&
      section.trainable_params_regex != UnlearningSection{}.trainable_params_regex) {
    check.fail(
        "unlearning.trainable_params_regex",
        "not used with an adapter: only the adapter is trained",
        "remove it; lora.target_modules and lora.layers_to_transform select the layers");
  }
}

void check_constraint(
    const UnlearningSection& section, const UnlearningMethod& method, Checker& check) {
  if (!method.levels) {
    return;
  }
  if (!section.retain_loss_eps) {
    check.fail(
        "unlearning.retain_loss_eps",
        "is required: PDU keeps the retain loss below it",
        "set it slightly above the model's initial retain loss: unlearning.retain_loss_eps=0.3");
  }
  if (section.alpha.value_or(1) == 0) {
    check.fail(
        "unlearning.alpha",
        "must be above 0: PDU has a retain loss",
        "set the initial weight of the retain loss, or use a method without one");
  }
}

/// Returns true if a metric is only available for this benchmark.
bool is_of(std::string_view metric, std::string_view benchmark) {
  const bool is_muses = metric.ends_with("mem_ROUGE");
  const bool is_tofus = metric == "forget_truth_ratio" || metric == "forget_quality" ||
                        metric.starts_with("forget_Q_A") || metric == "model_utility";
  return benchmark == "muse" ? is_muses : is_tofus;
}

/// Checks the evaluation settings of training runs.
void check_measures(const Config& config, Checker& check) {
  const TrainingSection& training = config.training;
  const bool measures =
      training.eval_strategy != "no" || training.eval_on_start || training.do_eval;
  if (measures && config.unlearning.data_dir.empty()) {
    check.fail(
        "training.eval_strategy",
        "evaluating an unlearning run requires the files of unlearning.data_dir, which is not set",
        "set unlearning.data_dir=FOLDER with TOFU's files, or training.eval_strategy=no");
  }
  const bool picks = training.load_best_model_at_end || training.save_strategy == "best" ||
                     training.early_stopping_patience;
  if (measures && picks && !training.metric_for_best_model) {
    check.fail(
        "training.metric_for_best_model",
        "is required: a smaller loss on the forget set is not better",
        fmt::format("one of {}", fmt::join(metrics_of(config.unlearning), ", ")));
  }
}

void check_unlearning_rows(
    const Config& config,
    const UnlearningMethod& method,
    Checker& check,
    std::vector<std::string>& warnings) {
  const UnlearningSection& section = config.unlearning;
  const bool keeps = method.keeps && section.alpha.value_or(method.alpha) > 0;
  if (!method.forgets && !section.forget.empty()) {
    check.fail(
        "unlearning.forget",
        fmt::format("{} forgets nothing", method.name),
        "put the training rows in unlearning.retain");
  }
  const bool trains = !section.forget.empty() || !section.retain.empty();
  if (method.forgets && section.forget.empty() && trains) {
    check.fail("unlearning.forget", "is required", "unlearning.forget=FILE");
  }
  if (keeps && section.retain.empty() && trains) {
    check.fail(
        "unlearning.retain",
        fmt::format("unlearning.method={} requires a retain set", method.name),
        method.alpha > 0
            ? "set unlearning.retain=FILE, or unlearning.alpha=0 to train without a retain loss"
            : "unlearning.retain=FILE");
  }
  if (!keeps && !section.retain.empty()) {
    warnings.push_back(fmt::format(
        "unlearning.retain has no effect: {}",
        method.keeps ? "unlearning.alpha is 0"
                     : fmt::format("{} has no retain loss", method.name)));
  }
  check.require(section.max_new_tokens >= 1, "unlearning.max_new_tokens", "at least 1");
  if (!keeps && section.anchor == "retain") {
    check.fail("unlearning.anchor", "there is no retain set", "set it to forget");
  }
  if (section.text_key && method.name == "DPO") {
    check.fail(
        "unlearning.text_key",
        "plain text has no alternate answer, which DPO requires",
        "remove it");
  }
  for (const char* key : {"unlearning.prefix_key", "unlearning.insert_space"}) {
    const bool needs_prefix = std::string_view(key) == "unlearning.insert_space";
    if (is_typed_here(check, key) && !(needs_prefix ? section.prefix_key : section.text_key)) {
      check.fail(
          key,
          fmt::format("only used with unlearning.{}", needs_prefix ? "prefix_key" : "text_key"),
          "set it, or remove this key");
    }
  }
  const bool has_field = section.alternate_key.has_value(), has_lines = !section.refusals.empty();
  if (method.name == "DPO" && has_field == has_lines) {
    check.fail(
        "unlearning.refusals",
        has_field ? "unlearning.alternate_key is also set" : "DPO requires alternate answers",
        has_field ? "set only one of them"
                  : "set unlearning.refusals=FILE with one refusal per line, or "
                    "unlearning.alternate_key=FIELD");
  }
  for (const char* key : {"data.train", "data.validation", "data.test"}) {
    if (is_typed_here(check, key)) {
      check.fail(
          key, "not used with task.type=unlearning", "use unlearning.forget and unlearning.retain");
    }
  }
}

}  // namespace

void validate_unlearning(const Config& config, Checker& check, std::vector<std::string>& warnings) {
  const UnlearningSection& section = config.unlearning;
  for (const std::string& metric : section.metrics) {
    const auto& known = choices::kUnlearningMetrics;
    if (std::ranges::find(known, metric) == std::end(known)) {
      check.fail(
          "unlearning.metrics",
          fmt::format("unknown metric {}", metric),
          fmt::format("there are {}", fmt::join(known, ", ")));
    } else if (is_of(metric, section.benchmark == "muse" ? "tofu" : "muse")) {
      check.fail(
          "unlearning.metrics",
          fmt::format("{} is not a metric of unlearning.benchmark={}", metric, section.benchmark),
          "remove it, or set the other benchmark");
    } else if (metric == "mia_reference" && !section.mia_reference_path) {
      check.fail(
          "unlearning.mia_reference_path",
          "mia_reference requires a reference model",
          "set unlearning.mia_reference_path=FOLDER to a model that was not trained on the rows");
    }
  }
  if (config.task.type != "unlearning") {
    for (const char* key : {"unlearning.method", "unlearning.forget"}) {
      if (is_typed_here(check, key)) {
        check.fail(key, "only used with task.type=unlearning", "set it, or remove this key");
      }
    }
    return;
  }
  check_unlearning_numbers(section, check);
  if (!section.method) {
    if ((section.forget.empty() && section.retain.empty()) || check.given("unlearning.method")) {
      return;  // not a training run, or the error was already reported
    }
    std::vector<std::string_view> names;
    for (const UnlearningMethod& method : unlearning_methods()) {
      names.push_back(method.name);
    }
    check.fail(
        "unlearning.method", "is required", fmt::format("one of {}", fmt::join(names, ", ")));
    return;
  }
  if (std::ranges::none_of(unlearning_methods(), [&](const UnlearningMethod& method) {
        return method.name == *section.method;
      })) {
    return;  // already reported
  }
  const UnlearningMethod& method = unlearning_method(*section.method);
  check_use_by_method(method, check);
  check_states(config, method, check);
  check_constraint(section, method, check);
  check_unlearning_rows(config, method, check, warnings);
  check_measures(config, check);
}

}  // namespace lockstep::config
