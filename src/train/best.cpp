// Selects the best evaluation and decides on early stopping.
#include "train/best.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "metrics/directions.h"

namespace lockstep::train {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kOtherNames{{
    {"auc", "roc_auc"},
    {"auroc", "roc_auc"},
    {"ap", "average_precision"},
    {"combined_score", "f1"},
    {"kappa", "cohen_kappa"},
    {"lrap", "label_ranking_average_precision"},
    {"matthews", "matthews_correlation"},
    {"matthews_corrcoef", "matthews_correlation"},
    {"mcc", "matthews_correlation"},
    {"pearsonr", "pearson"},
    {"spearmanr", "spearman"},
    {"subset_accuracy", "accuracy"},
}};

}  // namespace

std::string find_metric(std::string_view word, std::span<const std::string> metrics) {
  std::string_view name = metrics::without_prefix(word);
  const auto has = [&](std::string_view wanted) {
    return std::find(metrics.begin(), metrics.end(), wanted) != metrics.end();
  };
  if (name == "loss" || has(name)) {
    return std::string(name);
  }
  for (const auto& [other, own] : kOtherNames) {
    name = name == other ? own : name;
  }
  std::vector<std::string> found;
  for (const std::string& metric : metrics) {
    if (metric == name) {
      return metric;
    }
    if (metric.ends_with(fmt::format("_{}", name))) {
      found.push_back(metric);
    }
  }
  return found.size() == 1 ? found.front() : "";
}

BestRule::BestRule(const config::TrainingSection& training, std::span<const std::string> metrics) {
  const std::string word = training.metric_for_best_model.value_or("loss");
  metric_ = find_metric(word, metrics);
  if (metric_.empty()) {
    std::vector<std::string> names(metrics.begin(), metrics.end());
    names.insert(names.begin(), "loss");
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "training.metric_for_best_model={}: no evaluation of this run computes it.{}",
            word,
            did_you_mean(word, names)),
        fmt::format("it gives {}", fmt::join(names, ", ")));
  }
  greater_is_better_ = training.greater_is_better.value_or(metrics::greater_is_better(metric_));
  is_asked_for_ = training.metric_for_best_model || training.load_best_model_at_end ||
                  training.early_stopping_patience || training.save_strategy == "best" ||
                  training.lr_scheduler_type == "reduce_lr_on_plateau" ||
                  training.lr_scheduler_type == "greedy";
  patience_ = training.early_stopping_patience;
  threshold_ = training.early_stopping_threshold;
}

bool BestRule::is_better(double value, double than) const {
  return greater_is_better_ ? value > than : value < than;
}

bool BestRule::observe(Best& best, double value, int64_t step) const {
  const bool better = !std::isnan(value) && (!best.metric || is_better(value, *best.metric));
  const bool counts = better && (!best.metric || std::abs(value - *best.metric) > threshold_);
  best.no_better = counts ? 0 : best.no_better + 1;
  best.latest_metric = value;
  best.latest_step = step;
  if (better) {
    best.metric = value;
    best.step = step;
  }
  return better;
}

bool BestRule::observe_save(
    Best& best, int64_t step, const std::filesystem::path& checkpoint) const {
  const double metric = best.latest_metric;
  if (best.latest_step != step || std::isnan(metric) ||
      (best.saved && !is_better(metric, best.saved->metric))) {
    return false;
  }
  best.saved = {metric, step, checkpoint};
  return true;
}

bool BestRule::stops(const Best& best) const {
  return patience_ && best.no_better >= *patience_;
}

}  // namespace lockstep::train
