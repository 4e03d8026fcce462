// Conversion of data arguments of transformers' example scripts (run_glue.py,
// run_classification.py).
#pragma once

#include <string>
#include <vector>

#include "config/core/key_rules.h"

namespace lockstep::config {

/// Returns the files in data.train syntax. If `part` is a slice ("[:10]"), the files are joined
/// into one entry so that the slice applies to the rows of all files together.
std::vector<std::string> words_of(const std::vector<std::string>& files, const std::string& part);

/// Reads `task_name` of run_glue.py. Sets the dataset, columns and problem type of the task unless
/// they are set. If data files are given, sets only columns and problem type. A user variable of
/// that name in a file is left unchanged.
void read_glue_task(const RuleTarget& target, const std::string& name, const Value& value);

/// Reads `text_column_names` and `label_column_name` of run_classification.py. Both also select
/// sequence classification.
void read_text_columns(const RuleTarget& target, const std::string& name, const Value& value);
void read_label_column(const RuleTarget& target, const std::string& name, const Value& value);

/// Reads `max_train_samples`, `max_eval_samples` and `max_predict_samples`, which limit a set to
/// its first rows.
void read_most_samples(const RuleTarget& target, const std::string& name, const Value& value);

}  // namespace lockstep::config
