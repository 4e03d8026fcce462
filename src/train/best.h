// Best evaluation of a run, and early stopping.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "config/core/config.h"

namespace lockstep::train {

/// Best evaluation so far according to training.metric_for_best_model. Saved in checkpoints.
struct Best {
  std::optional<double> metric;
  int64_t step = 0;
  int64_t no_better = 0;  // evaluations since the last improvement that counts for early stopping
};

/// Metric that selects the best model, and the early stopping rule. Follows Hugging Face's Trainer
/// and EarlyStoppingCallback.
class BestRule {
 public:
  BestRule() = default;
  /// `metrics` are the names of an evaluation's metrics, without the loss. Throws Error (kConfig)
  /// if training.metric_for_best_model is not among them.
  BestRule(const config::TrainingSection& training, std::span<const std::string> metrics);

  /// "loss" or the name of a metric.
  const std::string& metric() const { return metric_; }
  bool greater_is_better() const { return greater_is_better_; }
  /// Records an evaluation after `step` steps. Returns true if it is the best so far, which
  /// requires a strict improvement; NaN never counts as one.
  bool observe(Best& best, double value, int64_t step) const;
  /// Returns true if the last training.early_stopping_patience evaluations did not improve on the
  /// best one by more than training.early_stopping_threshold.
  bool stops(const Best& best) const;

 private:
  bool is_better(double value, double than) const;

  std::string metric_ = "loss";
  bool greater_is_better_ = false;
  std::optional<int64_t> patience_;
  double threshold_ = 0;
};

/// Resolves a user's metric name to one of `metrics`: with or without "eval_", by its name in other
/// libraries (auc, mcc, spearmanr), or by the last words of exactly one name (accuracy for
/// token_accuracy). Returns an empty string if there is no match.
std::string find_metric(std::string_view word, std::span<const std::string> metrics);

}  // namespace lockstep::train
