// Checkpoints of any libtorch module and its optimizer in the format of checkpoint/checkpoint.h.
// model.safetensors contains the module's parameters and buffers under their names and can be read
// by other tools.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"

namespace torch {
namespace nn {
class Module;  // from <torch/nn.h>
}
namespace optim {
class Optimizer;  // from <torch/optim.h>
}
}  // namespace torch

namespace lockstep {

/// Module and optimizer, both replicated on every rank, as with DistributedDataParallel.
struct TrainedModule {
  torch::nn::Module& module;
  /// torch::optim::AdamW, Adam or SGD with this module's parameters; null: not saved.
  torch::optim::Optimizer* optimizer = nullptr;
};

/// Writes a checkpoint to `folder` (checkpoint::checkpoint_folder returns a suitable name). Each
/// rank writes an equal share of the bytes. `state` is JSON defined by the caller, such as the step
/// and the epoch; rank 0's `state` is saved. Must be called on every rank. Blocks until the
/// checkpoint is committed. Throws the errors of checkpoint::save_checkpoint, and Error (config) if
/// the optimizer is of an unsupported type or has parameters that are not in the module.
void save_module(
    const std::filesystem::path& folder,
    const TrainedModule& trained,
    const std::string& state,
    comm::Communicator& ranks);

/// Loads module and optimizer from a checkpoint saved by any number of ranks, and returns its
/// `state`. Parameters keep their identity. Must be called on every rank; each rank reads
/// independently. Does not restore optimizer options such as the learning rate. If tensors are
/// missing, have other shapes or do not belong to the module, changes nothing and throws Error
/// (checkpoint) with all problems.
std::string load_module(const checkpoint::Checkpoint& checkpoint, const TrainedModule& trained);

}  // namespace lockstep
