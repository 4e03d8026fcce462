// Data arguments of transformers' example scripts (run_glue.py, run_classification.py).
#pragma once

#include <string>
#include <vector>

#include "config/core/key_rules.h"

namespace lockstep::config {

/// Returns files in the syntax of data.train. With a slice ("[:10]") the files become one entry,
/// and the slice applies to the rows of all files together.
std::vector<std::string> words_of(const std::vector<std::string>& files, const std::string& part);

/// Reads `task_name` of run_glue.py: sets the dataset, the columns and the problem type of the task
/// if they are not set. If the user gives files, sets only columns and problem type. A user
/// variable with that name in a file is not changed.
void read_glue_task(const RuleTarget& target, const std::string& name, const Value& value);

/// Reads `text_column_names` and `label_column_name` of run_classification.py, which also select
/// sequence classification.
void read_text_columns(const RuleTarget& target, const std::string& name, const Value& value);
void read_label_column(const RuleTarget& target, const std::string& name, const Value& value);

/// Reads `max_train_samples`, `max_eval_samples`, `max_predict_samples`: use the first rows of a
/// set.
void read_most_samples(const RuleTarget& target, const std::string& name, const Value& value);

}  // namespace lockstep::config
