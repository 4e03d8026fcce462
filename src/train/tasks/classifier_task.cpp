// Training objective of a classifier.
#include "train/tasks/classifier_task.h"

#include <string>
#include <vector>

#include "config/core/class_weights.h"
#include "config/core/scalar.h"
#include "plan/from_config/planned_model.h"
#include "train/batches/labelled_data.h"

namespace lockstep::train {
using model::ProblemType;

objective::ObjectivePointer objective_of(
    model::ProblemType problem, const objective::ClassOptions& options) {
  switch (problem) {
    case ProblemType::kMultiLabel:
      return objective::label_cross_entropy(options);
    case ProblemType::kRegression:
      return objective::squared_error();
    case ProblemType::kSingleLabel:
      break;
  }
  const bool is_plain =
      options.weights.empty() && options.focal_gamma == 0 && options.label_smoothing == 0;
  return is_plain ? objective::cross_entropy() : objective::class_cross_entropy(options);
}

objective::Task planned_task(const config::Config& config, const model::ModelConfig& model) {
  objective::Task task;
  if (!classifies(config, model)) {
    task.objective = objective::cross_entropy(config.training.label_smoothing_factor);
    return task;
  }
  task.head = plan::planned_head(config, model);
  objective::ClassOptions options{{}, config.task.focal_gamma};
  for (size_t k = 0; !config.task.class_weights.empty() && k < task.head.labels.size(); ++k) {
    const bool is_given = config.task.class_weights.size() == task.head.labels.size() &&
                          config.task.class_weights.front() != "balanced" &&
                          !config::named_weight(config.task.class_weights.front());
    options.weights.push_back(
        is_given ? config::to_double(config.task.class_weights[k]).value()
                 : static_cast<double>(k + 1));
  }
  if (task.head.problem == ProblemType::kSingleLabel) {
    options.label_smoothing = config.training.label_smoothing_factor;
  }
  task.objective = objective_of(task.head.problem, options);
  return task;
}

}  // namespace lockstep::train
