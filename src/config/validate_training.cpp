// Validates the section training.
#include <algorithm>
#include <map>

#include "base/format.h"
#include "base/nearest.h"
#include "config/core/checker.h"
#include "config/tasks.h"
#include "config/validate.h"

namespace lockstep::config {
namespace {

bool is_whole(double value) {
  return std::floor(value) == value;
}

/// Returns true for a number of steps (an integer of at least 1) and for a fraction of all steps
/// (between 0 and 1).
bool is_interval(double value) {
  return std::isfinite(value) && value > 0 && value < 1e15 && (value < 1 || is_whole(value));
}

void validate_numbers(const TrainingSection& training, Checker& check) {
  const auto finite_from_0 = [](double value) { return std::isfinite(value) && value >= 0; };
  const auto is_share = [](double value) { return value >= 0 && value < 1; };
  const auto at_least = [&](int64_t value, int64_t least, const char* key) {
    check.require(value >= least, key, fmt::format("at least {}", least));
  };
  at_least(training.per_device_train_batch_size, 1, "training.per_device_train_batch_size");
  at_least(training.per_device_eval_batch_size, 1, "training.per_device_eval_batch_size");
  at_least(training.gradient_accumulation_steps, 1, "training.gradient_accumulation_steps");
  at_least(training.dataloader_num_workers, 0, "training.dataloader_num_workers");
  at_least(
      training.dataloader_prefetch_factor.value_or(1), 1, "training.dataloader_prefetch_factor");
  at_least(training.ddp_timeout, 1, "training.ddp_timeout");
  check.require(finite_from_0(training.hang_report), "training.hang_report", "at least 0");
  check.require(finite_from_0(training.hang_timeout), "training.hang_timeout", "at least 0");
  check.require(
      training.max_steps > 0 ||
          (std::isfinite(training.num_train_epochs) && training.num_train_epochs > 0),
      "training.num_train_epochs",
      "above 0");
  check.require(finite_from_0(training.learning_rate), "training.learning_rate", "at least 0");
  check.require(finite_from_0(training.weight_decay), "training.weight_decay", "at least 0");
  check.require(is_share(training.adam_beta1), "training.adam_beta1", "at least 0 and below 1");
  check.require(is_share(training.adam_beta2), "training.adam_beta2", "at least 0 and below 1");
  check.require(finite_from_0(training.adam_epsilon), "training.adam_epsilon", "at least 0");
  check.require(std::isfinite(training.max_grad_norm), "training.max_grad_norm", "a finite number");
  check.require(
      finite_from_0(training.neftune_noise_alpha.value_or(0)),
      "training.neftune_noise_alpha",
      "at least 0");
  at_least(training.early_stopping_patience.value_or(1), 1, "training.early_stopping_patience");
  check.require(
      finite_from_0(training.early_stopping_threshold),
      "training.early_stopping_threshold",
      "at least 0");
  check.require(
      training.label_smoothing_factor >= 0 && training.label_smoothing_factor < 1,
      "training.label_smoothing_factor",
      "at least 0 and below 1");
  check.require(
      std::isfinite(training.ddp_bucket_cap_mb) && training.ddp_bucket_cap_mb > 0,
      "training.ddp_bucket_cap_mb",
      "above 0");
  check.require(
      finite_from_0(training.router_aux_loss_coef.value_or(0)),
      "training.router_aux_loss_coef",
      "at least 0");
  check.require(
      finite_from_0(training.router_z_loss_coef), "training.router_z_loss_coef", "at least 0");
  const double capacity = training.expert_capacity_factor.value_or(1);
  check.require(
      std::isfinite(capacity) && capacity > 0, "training.expert_capacity_factor", "above 0");
  if (training.router_aux_loss_coef &&
      (training.router_aux_loss.empty() || training.router_aux_loss == "none")) {
    check.fail(
        "training.router_aux_loss_coef",
        "is only used with a load-balancing loss",
        "set training.router_aux_loss, or remove it");
  }
  const char* interval = "an integer number of steps, or a fraction of all steps between 0 and 1";
  check.require(is_interval(training.logging_steps), "training.logging_steps", interval);
  const auto is_interval_or_0 = [](double value) { return value == 0 || is_interval(value); };
  check.require(is_interval_or_0(training.save_steps), "training.save_steps", interval);
  check.require(is_interval_or_0(training.eval_steps.value_or(0)), "training.eval_steps", interval);
  const double warmup_epochs = training.warmup_epochs.value_or(0);
  check.require(
      std::isfinite(warmup_epochs) && warmup_epochs >= 0, "training.warmup_epochs", "at least 0");
  check.require(
      finite_from_0(training.warmup_steps) && training.warmup_steps < 1e15,
      "training.warmup_steps",
      "a number of steps, or a fraction of all steps between 0 and 1");
  check.require(finite_from_0(training.eval_delay), "training.eval_delay", "at least 0");
}

/// Checks learning rates and weight decays per name, layer and optimizer.
void validate_optimizers(const TrainingSection& training, Checker& check) {
  const auto finite_from_0 = [](double value) { return std::isfinite(value) && value >= 0; };
  const auto numbers_from_0 = [&](const char* key, const NumberMap& numbers) {
    for (const auto& [pattern, value] : numbers) {
      check.require(finite_from_0(value), key, "numbers of at least 0");
    }
  };
  numbers_from_0("training.learning_rates", training.learning_rates);
  numbers_from_0("training.weight_decays", training.weight_decays);
  const double decay = training.layer_wise_learning_rate_decay;
  check.require(
      decay > 0 && decay <= 1, "training.layer_wise_learning_rate_decay", "above 0, at most 1");
  check.require(
      finite_from_0(training.muon_learning_rate.value_or(0)),
      "training.muon_learning_rate",
      "at least 0");
  check.require(
      training.muon_momentum >= 0 && training.muon_momentum < 1,
      "training.muon_momentum",
      "at least 0 and below 1");
  check.require(
      training.muon_ns_steps >= 1 && training.muon_ns_steps < 100,
      "training.muon_ns_steps",
      "from 1 to 99");
  check.require(
      training.ademamix_beta3 >= 0 && training.ademamix_beta3 < 1,
      "training.ademamix_beta3",
      "at least 0 and below 1");
  check.require(finite_from_0(training.ademamix_alpha), "training.ademamix_alpha", "at least 0");
  check.require(training.ademamix_t_alpha >= 0, "training.ademamix_t_alpha", "at least 0");
  check.require(training.ademamix_t_beta3 >= 0, "training.ademamix_t_beta3", "at least 0");
  if (training.muon_learning_rate && training.optim != "muon") {
    check.fail(
        "training.muon_learning_rate",
        fmt::format("is only used with training.optim=muon, not {}", training.optim),
        "set training.optim=muon, or remove it");
  }
  const bool has_others = !training.learning_rates.empty() || training.muon_learning_rate;
  if (has_others && training.learning_rate == 0) {
    check.fail(
        "training.learning_rate",
        "is 0, but learning_rates or muon_learning_rate, which are scaled relative to it, are set",
        "set it above 0; use training.learning_rates to set the rate of parameters that do not "
        "change to 0");
  }
}

void validate_precision(const TrainingSection& training, Checker& check) {
  if (training.bf16 && training.fp16) {
    check.fail("training.fp16", "bf16 is also set", "set only one of them");
  }
  if (training.bf16_full_eval && training.fp16_full_eval) {
    check.fail("training.fp16_full_eval", "bf16_full_eval is also set", "set only one of them");
  }
  if (training.bf16_full_eval && !training.bf16) {
    check.fail(
        "training.bf16_full_eval",
        "evaluation uses the type of training, which is float32",
        "set training.bf16=true, or set this to false");
  }
}

void validate_evaluation(const Config& config, Checker& check) {
  const TrainingSection& training = config.training;
  const bool has_data = !config.data.validation.empty() || config.data.validation_fraction > 0 ||
                        config.task.type == "unlearning";  // has its own evaluation data
  const bool evaluates = training.eval_strategy != "no";
  const char* remedy = "set data.validation=FILE, or data.validation_fraction=0.05";
  if (evaluates && !has_data) {
    check.fail("training.eval_strategy", "evaluation data is required", remedy);
  } else if ((training.do_eval || training.eval_on_start) && !has_data) {
    check.fail(
        training.do_eval ? "training.do_eval" : "training.eval_on_start",
        "evaluation data is required",
        remedy);
  }
  if (training.do_predict && config.data.test.empty() && config.data.test_fraction == 0) {
    check.fail(
        "training.do_predict",
        "test data is required",
        "set data.test=FILE, or data.test_fraction=0.05");
  }
  if (training.save_strategy == "best" && !evaluates) {
    check.fail(
        "training.save_strategy",
        "selecting the best checkpoint requires evaluations",
        "set training.eval_strategy=steps");
  }
  if (training.early_stopping_patience && !evaluates) {
    check.fail(
        "training.early_stopping_patience",
        "early stopping requires evaluations",
        "set training.eval_strategy=epoch, or steps");
  }
  if (!training.load_best_model_at_end) {
    return;
  }
  const std::string key = "training.load_best_model_at_end";
  if (!evaluates) {
    check.fail(
        key,
        "selecting the best checkpoint requires evaluations",
        "set training.eval_strategy to the value of save_strategy");
  } else if (training.save_strategy != "best" && training.save_strategy != training.eval_strategy) {
    check.fail(
        key,
        fmt::format(
            "save_strategy {} differs from eval_strategy {}",
            training.save_strategy,
            training.eval_strategy),
        "set them to the same value, or set training.save_strategy=best");
  } else if (training.save_strategy == "steps") {
    const double asked = training.eval_steps.value_or(0);
    const double each = asked > 0 ? asked : training.logging_steps;
    const double times = training.save_steps / each;
    if ((training.save_steps < 1) != (each < 1) || std::abs(times - std::round(times)) > 1e-9) {
      check.fail(
          key,
          fmt::format(
              "save_steps {} is not a multiple of eval_steps {}, so some checkpoints would have no "
              "metric",
              training.save_steps,
              each),
          "make save_steps a multiple of eval_steps");
    }
  }
}

const std::map<std::string, std::vector<std::string>>& arguments_of_schedules() {
  static const std::map<std::string, std::vector<std::string>> kArguments = {
      {"linear", {}},
      {"cosine", {"num_cycles"}},
      {"cosine_with_restarts", {"num_cycles"}},
      {"polynomial", {"lr_end", "power"}},
      {"constant", {}},
      {"constant_with_warmup", {}},
      {"inverse_sqrt", {"timescale"}},
      {"cosine_with_min_lr", {"num_cycles", "min_lr", "min_lr_rate"}},
      {"cosine_warmup_with_min_lr", {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
      {"warmup_stable_decay",
       {"num_decay_steps",
        "num_stable_steps",
        "warmup_type",
        "decay_type",
        "min_lr_ratio",
        "num_cycles"}},
      {"reduce_lr_on_plateau",
       {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"}},
      {"greedy",
       {"mode",
        "factor",
        "patience",
        "threshold",
        "threshold_mode",
        "cooldown",
        "warmup",
        "min_lr",
        "max_lr",
        "eps",
        "smooth",
        "window_size",
        "reset_start"}},
  };
  return kArguments;
}

void validate_schedule(
    const TrainingSection& training, Checker& check, std::vector<std::string>& warnings) {
  const std::string& type = training.lr_scheduler_type;
  const SchedulerArguments& arguments = training.lr_scheduler_kwargs;
  const std::vector<std::string> allowed = scheduler_arguments(type);
  const std::string prefix = "training.lr_scheduler_kwargs.";
  for (const std::string& key : key_names()) {
    const bool known =
        !key.starts_with(prefix) ||
        std::find(allowed.begin(), allowed.end(), key.substr(prefix.size())) != allowed.end();
    if (!known && !check.value(key).is_null()) {
      check.fail(
          key,
          fmt::format("lr_scheduler_type={} does not use it", type),
          allowed.empty() ? "it has no arguments"
                          : fmt::format("its arguments are {}", fmt::join(allowed, ", ")));
    }
  }
  if (type == "warmup_stable_decay" && arguments.num_decay_steps.value_or(-1) < 0) {
    check.fail(
        prefix + "num_decay_steps",
        "warmup_stable_decay requires a number of steps, at least 0",
        fmt::format("set {}num_decay_steps=100, or another number of decay steps", prefix));
  }
  if ((type == "cosine_with_min_lr" || type == "cosine_warmup_with_min_lr") &&
      arguments.min_lr.has_value() == arguments.min_lr_rate.has_value()) {
    check.fail(
        prefix + "min_lr",
        fmt::format("{} requires either min_lr or min_lr_rate", type),
        fmt::format("set {}min_lr_rate=0.1, a fraction of training.learning_rate", prefix));
  }
  if ((type == "reduce_lr_on_plateau" || type == "greedy") && training.eval_strategy == "no") {
    check.fail(
        "training.lr_scheduler_type",
        fmt::format("{} requires evaluations", type),
        "set training.eval_strategy=steps");
  }
  if (type == "polynomial" && arguments.lr_end.value_or(1e-7) >= training.learning_rate) {
    check.fail(
        prefix + "lr_end",
        fmt::format(
            "{} must be below learning_rate {}",
            arguments.lr_end.value_or(1e-7),
            training.learning_rate),
        "increase training.learning_rate, or reduce lr_end");
  }
  check.require(arguments.timescale.value_or(1) >= 1, prefix + "timescale", "at least 1");
  if (arguments.factor) {
    check.require(
        *arguments.factor >= 0 && *arguments.factor < 1, prefix + "factor", "from 0 to below 1");
  }
  if (training.max_steps > 0 && training.warmup_steps >= 1 &&
      training.warmup_steps >= static_cast<double>(training.max_steps)) {
    warnings.push_back(fmt::format(
        "training.warmup_steps ({}) must be below max_steps ({}): the learning rate never reaches "
        "{}",
        training.warmup_steps,
        training.max_steps,
        training.learning_rate));
  }
}

void validate_sampling(const Config& config, Checker& check) {
  const std::string key = "training.train_sampling_strategy";
  if (config.training.train_sampling_strategy != "group_by_length") {
    return;
  }
  const char* remedy = "set training.train_sampling_strategy=random";
  if (!config.data.mixture.empty()) {
    check.fail(
        key,
        "group_by_length is not supported with data.mixture, which draws each sequence from a "
        "random source",
        remedy);
  } else if (unlearns(config.task)) {
    check.fail(
        key,
        "group_by_length is not supported with task.type=unlearning, which draws a random retain "
        "row for each forget row",
        remedy);
  }
}

/// Returns a hint for an unsupported tracker.
const char* remedy_of_tracker(const std::string& tracker) {
  if (tracker == "trackio") {
    return "set report_to=tensorboard and import the files with "
           "trackio.import_tf_events('LOGGING_DIR', project='NAME'): Trackio's own format is beta "
           "and changes between versions";
  }
  if (tracker == "aim") {
    return "set report_to=tensorboard and import the files with `aim convert tensorboard --logdir "
           "LOGGING_DIR`: Aim's own format is not documented";
  }
  return "metrics.jsonl in output_dir contains every metric, one JSON object per line, for other "
         "trackers";
}

void validate_trackers(const Config& config, Checker& check) {
  const TrainingSection& training = config.training;
  const std::vector<std::string> known = {"none", "all", "tensorboard", "wandb", "mlflow"};
  for (const std::string& tracker : training.report_to) {
    if (std::find(known.begin(), known.end(), tracker) == known.end()) {
      check.fail(
          "training.report_to",
          fmt::format(
              "'{}' is not one of {}.{}",
              tracker,
              fmt::join(known, ", "),
              did_you_mean(tracker, known)),
          remedy_of_tracker(tracker));
    }
  }
  const bool has_board = std::ranges::any_of(training.report_to, [](const std::string& tracker) {
    return tracker == "tensorboard" || tracker == "all";
  });
  if (config.monitor.histograms > 0 && !has_board) {
    check.fail(
        "monitor.histograms",
        "histograms are written to TensorBoard files, which training.report_to does not enable",
        "set report_to=tensorboard");
  }
}

}  // namespace

std::vector<std::string> scheduler_arguments(const std::string& schedule) {
  const auto found = arguments_of_schedules().find(schedule);
  return found == arguments_of_schedules().end() ? std::vector<std::string>{} : found->second;
}

void validate_training(const Config& config, Checker& check, std::vector<std::string>& warnings) {
  validate_numbers(config.training, check);
  validate_optimizers(config.training, check);
  validate_precision(config.training, check);
  validate_evaluation(config, check);
  validate_schedule(config.training, check, warnings);
  validate_sampling(config, check);
  validate_trackers(config, check);
}

}  // namespace lockstep::config
