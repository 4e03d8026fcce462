#include "train/classifier_task.h"

#include <string>
#include <vector>

#include "train/labelled_data.h"

namespace lockstep::train {
namespace {

using model::ProblemType;

model::HeadSpec planned_head(const config::Config& config, const model::ModelConfig& model) {
  const std::vector<std::string>& fields = config.data.label_field;
  model::HeadSpec head{model::HeadSpec::Kind::kClassifier, config.task.labels};
  const bool is_the_models = model.head.classifies() && config.task.labels.empty();
  if (config.task.problem_type) {
    head.problem = *model::parse_problem_type(*config.task.problem_type);
  } else if (is_the_models) {
    head.problem = model.head.problem;
  } else if (fields.size() > 1 || !config.data.label_delimiter.empty()) {
    head.problem = ProblemType::kMultiLabel;
  }
  if (is_the_models) {
    head.labels = model.head.labels;
  } else if (head.labels.empty() && fields.size() > 1) {
    head.labels = fields;
  } else if (head.labels.empty()) {
    head.labels = head.problem == ProblemType::kRegression
                      ? std::vector<std::string>{"LABEL_0"}
                      : std::vector<std::string>{"LABEL_0", "LABEL_1"};
  }
  return head;
}

}  // namespace

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
  task.head = planned_head(config, model);
  objective::ClassOptions options{{}, config.task.focal_gamma};
  for (size_t k = 0; !config.task.class_weights.empty() && k < task.head.labels.size(); ++k) {
    const bool is_given = config.task.class_weights.size() == task.head.labels.size() &&
                          config.task.class_weights.front() != "balanced";
    options.weights.push_back(
        is_given ? std::stod(config.task.class_weights[k]) : static_cast<double>(k + 1));
  }
  if (task.head.problem == ProblemType::kSingleLabel) {
    options.label_smoothing = config.training.label_smoothing_factor;
  }
  task.objective = objective_of(task.head.problem, options);
  return task;
}

}  // namespace lockstep::train
