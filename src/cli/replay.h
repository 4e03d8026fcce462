// lockstep replay: a step of a run once more, from a checkpoint before it.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// `lockstep replay CHECKPOINT --step N`: trains from the checkpoint, with the configuration in it,
/// until step N is done, into a folder of its own, and compares each step's loss and gradient norm
/// with what the run recorded. Exit code 6 where they differ: by a bit on as many ranks as then, by
/// more than 1e-5 on others.
int run_replay(std::vector<std::string> arguments);

}  // namespace lockstep::cli
