// `lockstep replay`: repeats steps of a run from an earlier checkpoint.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// `lockstep replay CHECKPOINT --step N`: trains from the checkpoint with its configuration until
/// step N, in a separate folder. Compares the loss and gradient norm of each step with the recorded
/// ones. Returns exit code 6 if they differ. With the same number of ranks, every bit must be
/// equal; with another number, the difference may be up to 1e-5.
int run_replay(std::vector<std::string> arguments);

}  // namespace lockstep::cli
