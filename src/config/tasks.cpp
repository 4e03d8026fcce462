// Derives properties of the task from the configuration.
#include "config/tasks.h"

namespace lockstep::config {

bool classifies(const Config& config, bool is_classifier) {
  const TaskSection& task = config.task;
  const bool asks = !task.labels.empty() || task.problem_type || !task.class_weights.empty() ||
                    !task.positive_label.empty() || !task.metrics.empty() || task.save_scores ||
                    config.data.label_field != DataSection().label_field ||
                    !config.data.text_pair_field.empty();
  return task.type ? *task.type == "sequence_classification" : is_classifier || asks;
}

bool writes_labels(const TaskSection& task) {
  return task.type == "generative_classification";
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

std::string retain_loss_of(const UnlearningSection& section) {
  return section.retain_loss.value_or(method_of(section).steers ? "EMBED_DIFF" : "NLL");
}

bool keeps_rows(const UnlearningSection& section) {
  return alpha_of(section) > 0;
}

bool needs_distributions(const UnlearningSection& section) {
  return method_of(section).reads_distributions ||
         (keeps_rows(section) && retain_loss_of(section) != "NLL");
}

std::vector<std::string> metrics_of(const UnlearningSection& section) {
  if (!section.metrics.empty()) {
    return section.metrics;
  }
  if (section.benchmark == "muse") {
    return {
        "forget_knowmem_ROUGE",
        "retain_knowmem_ROUGE",
        "forget_verbmem_ROUGE",
        "privleak",
        "extraction_strength"};
  }
  return {
      "forget_truth_ratio",
      "forget_quality",
      "forget_Q_A_Prob",
      "forget_Q_A_ROUGE",
      "model_utility",
      "privleak",
      "extraction_strength"};
}

int64_t rows_of_unlearning(const UnlearningSection& section) {
  return (method_of(section).forgets ? 1 : 0) + (section.method == "DPO" ? 1 : 0) +
         (keeps_rows(section) ? 1 : 0);
}

}  // namespace lockstep::config
