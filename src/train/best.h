// Which evaluation was best, and whether training has stopped getting better.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "config/core/config.h"

namespace lockstep::train {

/// The best evaluation so far, by training.metric_for_best_model; saved with a checkpoint.
struct Best {
  std::optional<double> metric;
  int64_t step = 0;
  int64_t no_better = 0;  // evaluations since the last one that early stopping takes for better
};

/// What is judged by which metric, and when to stop, as Hugging Face's Trainer and its
/// EarlyStoppingCallback do it.
class BestRule {
 public:
  BestRule() = default;
  /// `metrics` are the names that an evaluation gives beside its loss. Error (kConfig) where
  /// training.metric_for_best_model is none of them.
  BestRule(const config::TrainingSection& training, std::span<const std::string> metrics);

  /// "loss", or the name of a metric.
  const std::string& metric() const { return metric_; }
  bool greater_is_better() const { return greater_is_better_; }
  /// An evaluation's value after `step` steps. Returns whether it is the best so far: only what is
  /// strictly better, NaN never.
  bool observe(Best& best, double value, int64_t step) const;
  /// Whether training.early_stopping_patience evaluations, one after another, were no better by
  /// more than training.early_stopping_threshold than the best before them.
  bool stops(const Best& best) const;

 private:
  bool is_better(double value, double than) const;

  std::string metric_ = "loss";
  bool greater_is_better_ = false;
  std::optional<int64_t> patience_;
  double threshold_ = 0;
};

/// The name among `metrics` that a user's word is: with or without "eval_", the names of other
/// libraries (auc, mcc, spearmanr), or the last words of one name alone (accuracy for
/// token_accuracy). Empty: none.
std::string find_metric(std::string_view word, std::span<const std::string> metrics);

}  // namespace lockstep::train
