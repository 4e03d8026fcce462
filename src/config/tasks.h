// Properties of the task from the section `task`.
#pragma once

#include <cstdint>

#include "config/core/config.h"
#include "config/core/unlearning.h"

namespace lockstep::config {

/// Whether rows are given labels: it is said, or a key of classifiers is, or the model is one.
bool classifies(const Config& config, bool is_classifier);

/// Whether labels are texts that a language model writes: task.type=generative_classification.
bool writes_labels(const TaskSection& task);

/// Whether answers are what is trained on: task.type preference or reward_model.
bool trains_on_answers(const TaskSection& task);
/// Whether it is a head of one class that tells how good they are.
bool trains_rewards(const TaskSection& task);

/// Rows that are drawn together, as one sequence of a batch: two of a pair, else one.
int64_t rows_of_sequence(const Config& config);

/// Whether rows are to be forgotten: task.type=unlearning.
bool unlearns(const TaskSection& task);
/// What the section's method is made of; GradDiff where none is named.
const UnlearningMethod& method_of(const UnlearningSection& section);
/// The weight of the rows to be kept; 0: there are none.
double alpha_of(const UnlearningSection& section);
/// What keeps them: the key, or what the method has.
std::string retain_loss_of(const UnlearningSection& section);
/// Whether rows are to be kept beside those that are to be forgotten.
bool keeps_rows(const UnlearningSection& section);
/// Whether positions are compared to what the model as it was gives there: distributions, or hidden
/// states.
bool needs_distributions(const UnlearningSection& section);
/// What is measured: the key, or the benchmark's own list.
std::vector<std::string> metrics_of(const UnlearningSection& section);
/// Rows that are drawn together, as one sequence of a batch: to be forgotten, the alternate of DPO,
/// to be kept.
int64_t rows_of_unlearning(const UnlearningSection& section);

}  // namespace lockstep::config
