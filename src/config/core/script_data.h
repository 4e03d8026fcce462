// Data as the example scripts of transformers name it (run_glue.py, run_classification.py).
#pragma once

#include <string>
#include <vector>

#include "config/core/key_rules.h"

namespace lockstep::config {

/// Files as data.train takes them; with a part ("[:10]"), one word that is of the rows of all of
/// them together.
std::vector<std::string> words_of(const std::vector<std::string>& files, const std::string& part);

/// `task_name` of run_glue.py: the data set of the task, its columns and its problem, where nothing
/// else is said of them. With files of one's own, columns and problem alone. A variable of that
/// name in a file stays one.
void read_glue_task(const RuleTarget& target, const std::string& name, const Value& value);

/// `text_column_names` and `label_column_name` of run_classification.py, which say by themselves
/// that rows are classified.
void read_text_columns(const RuleTarget& target, const std::string& name, const Value& value);
void read_label_column(const RuleTarget& target, const std::string& name, const Value& value);

/// `max_train_samples`, `max_eval_samples`, `max_predict_samples`: the first rows of a set.
void read_most_samples(const RuleTarget& target, const std::string& name, const Value& value);

}  // namespace lockstep::config
