// Data sets of Axolotl's configuration files: lists of files and of Hub names with their row types.
#pragma once

#include <string>

#include "config/core/key_rules.h"

namespace lockstep::config {

/// Reads `datasets` or `pretraining_dataset`. Files are joined; a Hub data set must be the only
/// one.
void read_axolotl_datasets(const RuleTarget& target, const std::string& name, const Value& value);
/// Reads `test_datasets`, which are files.
void read_axolotl_tests(const RuleTarget& target, const std::string& name, const Value& value);

}  // namespace lockstep::config
