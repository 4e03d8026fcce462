// Task properties derived from the configuration.
#pragma once

#include <cstdint>

#include "config/core/config.h"
#include "config/core/unlearning.h"

namespace lockstep::config {

/// Returns true for sequence classification, selected by task.type, by a classification key or by a
/// classifier model.
bool classifies(const Config& config, bool is_classifier);

/// Returns true for task.type=generative_classification: a language model generates labels as text.
bool writes_labels(const TaskSection& task);

/// Returns true for task.type=preference and reward_model, which train on answers.
bool trains_on_answers(const TaskSection& task);
/// Returns true for task.type=reward_model: a head with one output scores answers.
bool trains_rewards(const TaskSection& task);

/// Returns the number of rows per sampled unit of a batch: 2 for pairs, otherwise 1.
int64_t rows_of_sequence(const Config& config);

/// Returns true for task.type=unlearning.
bool unlearns(const TaskSection& task);
/// Returns the selected method, or GradDiff if none is set.
const UnlearningMethod& method_of(const UnlearningSection& section);
/// Returns the weight of the retain loss, 0 if there is none.
double alpha_of(const UnlearningSection& section);
/// Returns the configured retain loss, or the default of the method.
std::string retain_loss_of(const UnlearningSection& section);
/// Returns true if the method has a retain loss with a positive weight.
bool keeps_rows(const UnlearningSection& section);
/// Returns true if the loss needs token distributions or hidden states of the initial model.
bool needs_distributions(const UnlearningSection& section);
/// Returns the configured metrics, or those of the benchmark.
std::vector<std::string> metrics_of(const UnlearningSection& section);
/// Returns the number of rows per sampled unit of a batch: the forget row, the alternate row (DPO),
/// and the retain row.
int64_t rows_of_unlearning(const UnlearningSection& section);

}  // namespace lockstep::config
