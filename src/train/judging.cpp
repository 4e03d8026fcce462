// Reads the metric and threshold options of a classifier from the configuration.
#include "train/judging.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "train/best.h"

namespace lockstep::train {
namespace {

std::vector<std::string> chosen_metrics(
    const std::vector<std::string>& words, model::ProblemType problem) {
  const auto all = metric_names(problem);
  const std::vector<std::string> names(all.begin(), all.end());
  std::vector<std::string> chosen;
  for (const std::string& word : words) {
    std::string name = find_metric(word, names);
    if (name.empty() || name == "loss") {  // the loss is always reported
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "task.metrics: {} has no metric \"{}\".{}",
              model::name_of(problem),
              word,
              name.empty() ? did_you_mean(word, names) : " Its loss is always reported."),
          fmt::format("it has {}", fmt::join(names, ", ")));
    }
    if (std::ranges::find(chosen, name) == chosen.end()) {
      chosen.push_back(std::move(name));
    }
  }
  return chosen;
}

size_t positive_of(const std::string& label, const model::HeadSpec& head) {
  const std::vector<std::string>& labels = head.labels;
  if (head.problem != model::ProblemType::kSingleLabel || labels.size() != 2) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.positive_label=\"{}\" requires rows with one of two labels, but this is {} of {}",
            label,
            model::name_of(head.problem),
            labels.size()),
        "remove it: the report has a row for each label");
  }
  const auto at = std::ranges::find(labels, label);
  if (at == labels.end()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "task.positive_label: unknown label \"{}\".{}", label, did_you_mean(label, labels)),
        fmt::format("use one of {}", fmt::join(labels, ", ")));
  }
  return static_cast<size_t>(at - labels.begin());
}

}  // namespace

void check_problem(const config::Config& config, const model::HeadSpec& head, bool has_validation) {
  const bool is_single = head.problem == model::ProblemType::kSingleLabel;
  const bool is_regression = head.problem == model::ProblemType::kRegression;
  const auto refuse = [&](const char* key, const char* remedy) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} is not supported with {}", key, model::name_of(head.problem)),
        remedy);
  };
  if (config.training.label_smoothing_factor > 0 && !is_single) {
    refuse("training.label_smoothing_factor", "leave it 0: each label is a separate decision");
  }
  if (is_regression && (!config.task.class_weights.empty() || config.task.focal_gamma > 0)) {
    refuse("task.class_weights or task.focal_gamma", "remove it: regression has no classes");
  }
  if (config.task.thresholds == "tuned") {
    if (is_regression || (is_single && head.labels.size() != 2)) {
      refuse(
          "task.thresholds=tuned", "remove it: it requires two labels, or several labels per row");
    }
    if (!has_validation) {
      throw Error(
          ErrorKind::kConfig,
          "task.thresholds=tuned requires validation data",
          "set data.validation=FILE or data.validation_fraction=0.1");
    }
  }
}

void take_judging(
    const config::TaskSection& task, const model::HeadSpec& head, JudgeOptions& options) {
  options.metrics = chosen_metrics(task.metrics, head.problem);
  if (!task.positive_label.empty()) {
    options.positive = positive_of(task.positive_label, head);
  }
}

}  // namespace lockstep::train
