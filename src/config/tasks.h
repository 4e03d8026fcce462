// What section `task` asks for.
#pragma once

#include <cstdint>

#include "config/core/config.h"

namespace lockstep::config {

/// Whether rows are given labels: it is said, or a key of classifiers is, or the model is one.
bool classifies(const Config& config, bool is_classifier);

/// Whether answers are what is trained on: task.type preference or reward_model.
bool trains_on_answers(const TaskSection& task);
/// Whether it is a head of one class that tells how good they are.
bool trains_rewards(const TaskSection& task);

/// Rows that are drawn together, as one sequence of a batch: two of a pair, else one.
int64_t rows_of_sequence(const Config& config);

}  // namespace lockstep::config
