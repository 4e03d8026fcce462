// `lockstep export`: writes a model as a folder or a GGUF file.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Writes a model and an adapter as one model folder. Returns the exit code.
int run_export(std::vector<std::string> arguments);

}  // namespace lockstep::cli
