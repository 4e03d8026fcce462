// `lockstep export`: writes a model as a folder or a GGUF file.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Writes a model, merged with its adapter, to a model folder or GGUF file. Returns the exit code.
int run_export(std::vector<std::string> arguments);

}  // namespace lockstep::cli
