// Data parallelism in its old form, in one process: in every step the module is replicated to the
// devices, the batch is scattered over them, the outputs are gathered on the first, and the
// replicas' gradients are summed into the module's (torch.nn.DataParallel; Li et al., "PyTorch
// Distributed", VLDB 2020, 2.2, on why processes took its place).
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

/// The module's like on one device: leaves of its own, in the order of the module's parameters, and
/// its forward pass, from a device's part of the inputs to outputs with a row for each of theirs,
/// or one row. Called by a thread of its own.
struct Replica {
  std::vector<at::Tensor> parameters;
  std::function<at::Tensor(const std::vector<at::Tensor>& inputs)> forward;
};

/// One thread uses it, and no gradient goes to its inputs. Parameters live on the first device.
class DataParallel {
 public:
  using MakeReplica = std::function<Replica(c10::Device device)>;
  /// `parameters` are the module's. A device may be named several times: so ranks of a CPU are.
  DataParallel(
      std::vector<at::Tensor> parameters,
      const MakeReplica& make,
      std::vector<c10::Device> devices);
  DataParallel(const torch::nn::Sequential& module, std::vector<c10::Device> devices);

  /// Copies the parameters, cuts every input into as equal parts as there are devices along its
  /// first dim (those with no rows sit out), runs a thread each, and returns the outputs, one after
  /// the other, on the first device. Its backward pass runs a thread each too. Throws what the
  /// first replica that failed threw.
  at::Tensor forward(const std::vector<at::Tensor>& inputs);

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<c10::Device> devices_;
  std::vector<Replica> replicas_;
};

}  // namespace lockstep
