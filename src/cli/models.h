// `lockstep models`: lists the presets and the supported families.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Prints a table of the presets and one of the families, or a JSON object with --json. Returns the
/// exit code. Throws Error (config).
int run_models(std::vector<std::string> arguments);

}  // namespace lockstep::cli
