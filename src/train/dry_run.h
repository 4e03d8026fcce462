// Dry run: validates a configuration and summarizes the run.
#pragma once

#include <string>

#include "config/core/config.h"

namespace lockstep::train {

/// Reads the model's config and the tokenizer, finds the data files, and returns a summary of a run
/// on `ranks` ranks in a few lines. Computes and writes nothing. Throws the Error that the run
/// would end with.
std::string dry_run(const config::Config& config, int64_t ranks);

}  // namespace lockstep::train
