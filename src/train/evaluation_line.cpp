// Formats and prints the result of an evaluation.
#include "train/evaluation_line.h"

#include <algorithm>

#include "monitor/progress.h"

namespace lockstep::train {

std::string print_evaluation(
    const Job& job,
    const Evaluation& result,
    const std::string& prefix,
    bool is_best,
    const std::string& suffix) {
  if (job.monitor == nullptr) {
    return "";
  }
  monitor::EvaluationFigures figures{
      .set = prefix + suffix,
      .loss_name = prefix + "_loss" + suffix,
      .step = job.progress.step,
      .total_steps = job.length.total_steps,
      .loss = result.report.loss,
      .metrics = result.report.metrics,
      .training = job.epoch_rows.text(job.progress.epoch),
      .is_best = is_best,
      .seconds = result.seconds};
  // The metric that selects the best model is always shown.
  const auto chosen = std::ranges::find(
      figures.metrics, job.best_rule.metric(), [](auto& each) { return each.first; });
  if (chosen != figures.metrics.end()) {
    std::rotate(figures.metrics.begin(), chosen, chosen + 1);
  }
  std::string line = monitor::format_evaluation(figures);
  job.monitor->print(line);
  return line;
}

}  // namespace lockstep::train
