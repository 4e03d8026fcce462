// Checkpoints of any libtorch module and its optimizer, in the form of checkpoint/checkpoint.h:
// model.safetensors has the module's parameters and buffers by their names, and opens anywhere.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"

namespace torch {
namespace nn {
class Module;  // <torch/nn.h>
}
namespace optim {
class Optimizer;  // <torch/optim.h>
}
}  // namespace torch

namespace lockstep {

/// What every rank holds alike: the same parameters, as DistributedDataParallel keeps them.
struct TrainedModule {
  torch::nn::Module& module;
  /// torch::optim::AdamW, Adam or SGD, of this module's parameters; null: it is left out.
  torch::optim::Optimizer* optimizer = nullptr;
};

/// Writes a checkpoint to `folder` (checkpoint::checkpoint_folder gives its name), each rank its
/// share of the bytes, so that it takes as long as the disk does. `state` is JSON of the caller's
/// own, rank 0's counts: the step, the epoch. Every rank must call; blocks until the checkpoint is
/// committed. Errors: those of checkpoint::save_checkpoint; (config) an optimizer of another kind,
/// or with parameters that are not the module's.
void save_module(
    const std::filesystem::path& folder,
    const TrainedModule& trained,
    const std::string& state,
    comm::Communicator& ranks);

/// Fills module and optimizer from a checkpoint that any number of ranks saved, and returns its
/// state. Parameters keep their identity. Every rank must call, each reads for itself. Error
/// (checkpoint), all problems at once, where tensors are missing, have other shapes, or are not the
/// module's; then nothing was changed. Options of the optimizer (its learning rate) are the
/// caller's.
std::string load_module(const checkpoint::Checkpoint& checkpoint, const TrainedModule& trained);

}  // namespace lockstep
