#include "config/tasks.h"

namespace lockstep::config {

bool classifies(const Config& config, bool is_classifier) {
  const TaskSection& task = config.task;
  const bool asks = !task.labels.empty() || task.problem_type || !task.class_weights.empty() ||
                    config.data.label_field != DataSection().label_field ||
                    !config.data.text_pair_field.empty();
  return task.type ? *task.type == "sequence_classification" : is_classifier || asks;
}

bool trains_on_answers(const TaskSection& task) {
  return task.type == "preference" || trains_rewards(task);
}

bool trains_rewards(const TaskSection& task) {
  return task.type == "reward_model";
}

int64_t rows_of_sequence(const Config& config) {
  const bool is_single = config.preference.objective == "kto" && !trains_rewards(config.task);
  return trains_on_answers(config.task) && !is_single ? 2 : 1;
}

bool unlearns(const TaskSection& task) {
  return task.type == "unlearning";
}

const UnlearningMethod& method_of(const UnlearningSection& section) {
  return unlearning_method(section.method.value_or("GradDiff"));
}

double alpha_of(const UnlearningSection& section) {
  const UnlearningMethod& method = method_of(section);
  return method.keeps ? section.alpha.value_or(method.alpha) : 0;
}

bool keeps_rows(const UnlearningSection& section) {
  return alpha_of(section) > 0;
}

bool needs_distributions(const UnlearningSection& section) {
  return method_of(section).reads_distributions ||
         (keeps_rows(section) && section.retain_loss == "KL");
}

int64_t rows_of_unlearning(const UnlearningSection& section) {
  return (method_of(section).forgets ? 1 : 0) + (section.method == "DPO" ? 1 : 0) +
         (keeps_rows(section) ? 1 : 0);
}

}  // namespace lockstep::config
