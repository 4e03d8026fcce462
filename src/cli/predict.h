// `lockstep predict`: predicts the label of each row.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

int run_predict(std::vector<std::string> arguments);

}  // namespace lockstep::cli
