// Properties of the task, derived from the configuration.
#pragma once

#include <cstdint>

#include "config/core/config.h"
#include "config/core/unlearning.h"

namespace lockstep::config {

/// Returns true for sequence classification: by task.type, by a classification key, or because the
/// model is a classifier.
bool classifies(const Config& config, bool is_classifier);

/// Returns true if a language model generates labels as text: task.type=generative_classification.
bool writes_labels(const TaskSection& task);

/// Returns true for training on answers: task.type=preference or reward_model.
bool trains_on_answers(const TaskSection& task);
/// Returns true if the model is a reward model, with a head of one class that scores answers.
bool trains_rewards(const TaskSection& task);

/// Returns the number of rows sampled together as one sequence of a batch: 2 for pairs, otherwise
/// 1.
int64_t rows_of_sequence(const Config& config);

/// Returns true for task.type=unlearning.
bool unlearns(const TaskSection& task);
/// Returns the method of the section; GradDiff if none is set.
const UnlearningMethod& method_of(const UnlearningSection& section);
/// Returns the weight of the retain loss; 0: no retain loss.
double alpha_of(const UnlearningSection& section);
/// Returns the retain loss: the key, otherwise the default of the method.
std::string retain_loss_of(const UnlearningSection& section);
/// Returns true if the method has a retain loss with a positive weight.
bool keeps_rows(const UnlearningSection& section);
/// Returns true if token distributions or hidden states of the initial model are needed.
bool needs_distributions(const UnlearningSection& section);
/// Returns the metrics: the key, otherwise the list of the benchmark.
std::vector<std::string> metrics_of(const UnlearningSection& section);
/// Returns the number of rows sampled together as one sequence of a batch: the forget row, the
/// alternate of DPO, and the retain row.
int64_t rows_of_unlearning(const UnlearningSection& section);

}  // namespace lockstep::config
