// Dry run: validates a configuration and summarizes the run.
#pragma once

#include <string>

#include "config/core/config.h"

namespace lockstep::train {

/// Reads the model's config and the tokenizer, finds the data files, and returns a short summary of
/// a run on `ranks` ranks. Computes and writes nothing. If the run would fail with an Error during
/// its setup, throws the same Error.
std::string dry_run(config::Config config, int64_t ranks);

}  // namespace lockstep::train
