// Single-process data parallelism. In every step the module is replicated to all devices, the batch
// is scattered, the outputs are gathered on the first device, and the replicas' gradients are
// summed into the module's (torch.nn.DataParallel; Li et al., "PyTorch Distributed", VLDB 2020,
// 2.2, explains why multi-process training replaced it).
//
//   lockstep::DataParallel parallel(model, {device0, device1});
//   torch::mse_loss(parallel.forward({x}), target).backward();
//   optimizer.step();
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace torch::nn {
class Sequential;  // <torch/nn.h>
}

namespace lockstep {

/// A copy of the module on one device. `parameters` are its own leaf tensors, in the order of the
/// module's parameters. `forward` maps the device's slice of the inputs to outputs with one row per
/// input row, or a single row. Each replica runs on its own thread.
struct Replica {
  std::vector<at::Tensor> parameters;
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs)> forward;
};

/// Not thread-safe. Inputs receive no gradient. Parameters must be on the first device.
class DataParallel {
 public:
  using MakeReplica = std::function<Replica(c10::Device device)>;
  /// `parameters` are the module's. A device may be listed several times (for CPU tests).
  DataParallel(
      std::vector<at::Tensor> parameters,
      const MakeReplica& make,
      std::vector<c10::Device> devices);
  DataParallel(const torch::nn::Sequential& module, std::vector<c10::Device> devices);

  /// Copies the parameters, splits every input along its first dimension as evenly as possible
  /// (devices without rows are skipped) and runs one thread per device. Returns the outputs
  /// concatenated on the first device. The backward pass also uses one thread per device. If
  /// replicas fail, throws the exception of the first of them.
  at::Tensor forward(const std::vector<at::Tensor>& inputs);

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<c10::Device> devices_;
  std::vector<Replica> replicas_;
};

}  // namespace lockstep
