// `lockstep replay`: repeats steps of a run from an earlier checkpoint.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// `lockstep replay CHECKPOINT --step N`: trains from the checkpoint with its configuration until
/// step N, in a separate folder, and compares each step's loss and gradient norm with the recorded
/// ones. Exit code 6 if they differ: in any bit on the same number of ranks, by more than 1e-5 on
/// another.
int run_replay(std::vector<std::string> arguments);

}  // namespace lockstep::cli
