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

}  // namespace lockstep::config
