// `lockstep data`.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

int run_data(std::vector<std::string> arguments);

}  // namespace lockstep::cli
