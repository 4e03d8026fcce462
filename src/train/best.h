// Best evaluation of a run, and early stopping.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "config/core/config.h"

namespace lockstep::train {

/// Evaluation of weights that a checkpoint contains.
struct SavedEvaluation {
  double metric = 0;
  int64_t step = 0;
  std::filesystem::path checkpoint;
};

/// Best evaluation so far according to training.metric_for_best_model. Saved in checkpoints.
struct Best {
  std::optional<double> metric;
  int64_t step = 0;
  int64_t no_better = 0;     // evaluations since the last improvement; see BestRule::stops()
  double latest_metric = 0;  // of the last evaluation
  int64_t latest_step = -1;  // its step; -1: none
  std::optional<SavedEvaluation> saved{};  // the best one of those that have a checkpoint
};

/// Metric that selects the best model, and the early stopping rule. Follows Hugging Face's Trainer
/// and EarlyStoppingCallback.
class BestRule {
 public:
  BestRule() = default;
  /// `metrics` are the names of an evaluation's metrics, without the loss. Throws Error (kConfig)
  /// if training.metric_for_best_model is neither the loss nor one of them.
  BestRule(const config::TrainingSection& training, std::span<const std::string> metrics);

  /// "loss" or the name of a metric.
  const std::string& metric() const { return metric_; }
  bool greater_is_better() const { return greater_is_better_; }
  /// Returns true if the configuration asks for the best model: by metric_for_best_model, by a key
  /// that loads or saves the best model, or by one that depends on the best evaluation.
  bool is_asked_for() const { return is_asked_for_; }
  /// Records an evaluation after `step` steps. Returns true if it is the best so far. An equal
  /// value or NaN is never the best.
  bool observe(Best& best, double value, int64_t step) const;
  /// Records that `checkpoint` contains the weights after `step` steps. Returns true if they were
  /// evaluated and are the best that have a checkpoint.
  bool observe_save(Best& best, int64_t step, const std::filesystem::path& checkpoint) const;
  /// Returns true if the last training.early_stopping_patience evaluations did not improve on the
  /// best one by more than training.early_stopping_threshold.
  bool stops(const Best& best) const;

 private:
  bool is_better(double value, double than) const;

  std::string metric_ = "loss";
  bool greater_is_better_ = false;
  bool is_asked_for_ = false;
  std::optional<int64_t> patience_;
  double threshold_ = 0;
};

/// Finds the metric that a user's name refers to. The name may have the prefix "eval_" or not, be
/// the metric's name in other libraries (auc, mcc, spearmanr), or be the last words of exactly one
/// name (accuracy for token_accuracy). Returns an empty string if no metric matches.
std::string find_metric(std::string_view word, std::span<const std::string> metrics);

}  // namespace lockstep::train
