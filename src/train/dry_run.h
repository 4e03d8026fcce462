// What a run would be, without running it.
#pragma once

#include <string>

#include "config/core/config.h"

namespace lockstep::train {

/// Reads the model's config and the tokenizer, looks for the data files, and tells what a run on
/// `ranks` ranks would be: a few lines of text. Computes nothing, writes nothing. Throws the Error
/// that the run would end with.
std::string dry_run(const config::Config& config, int64_t ranks);

}  // namespace lockstep::train
