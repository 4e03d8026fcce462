// Data parallelism for any libtorch module and optimizer: every rank has the whole model and its
// own part of the batch; gradients are averaged during the backward pass (Li et al., "PyTorch
// Distributed", VLDB 2020).
//   lockstep::DistributedDataParallel parallel(model.ptr(), world.communicator);
//   for (const auto& [x, target] : batches) {
//     parallel.backward(loss_of(model->forward(x), target));
//     optimizer.step();
//   }
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "parallel/data/data_parallel.h"

namespace torch::nn {
class Module;  // from <torch/nn.h>
}

namespace lockstep {

struct DistributedDataParallelOptions {
  /// Reduction of the gradients. Use the mean for losses that are means over each rank's samples,
  /// if all ranks have the same number of samples; use the sum for losses that are sums.
  enum class Gradient { kMeanOfRanks, kSumOfRanks } gradient = Gradient::kMeanOfRanks;
  /// Maximum size of a gradient bucket in megabytes.
  double bucket_megabytes = 25;
  /// Gives parameters that the loss does not reach a gradient of zero; if false, they are an Error
  /// that names them.
  bool find_unused_parameters = false;
  /// Type of the gradients during communication; nullopt: their own type.
  std::optional<at::ScalarType> reduce_type{};
};

/// Averages or sums a module's gradients over all ranks. Parameters keep their identity (the
/// optimizer may be created before or after); their storage moves to flat buffers. Not thread-safe.
class DistributedDataParallel {
 public:
  /// Broadcasts rank 0's parameters and buffers. Parameters must already be on their final device.
  /// Every rank of the group must call with a module that has the same parameters; otherwise throws
  /// Error (config), naming the first difference. The group must outlive this object.
  DistributedDataParallel(
      std::shared_ptr<torch::nn::Module> module,
      comm::Communicator& ranks,
      const DistributedDataParallelOptions& options = {});
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  enum class MicroBatch { kMore, kLast };
  /// Runs loss.backward() for a scalar loss of this rank's samples. After kLast, each parameter's
  /// grad() is the reduced gradient, valid until the next call. After kMore, no gradient is
  /// available yet; the next call accumulates without communication. Clears previous gradients, so
  /// zero_grad() is not needed. Every rank must call the same number of times. Blocks until the
  /// gradients are available. Throws Error (config), naming parameters without a gradient, or Error
  /// (peer lost).
  void backward(const at::Tensor& loss, MicroBatch which = MicroBatch::kLast);

  /// Broadcasts rank 0's buffers (e.g. running statistics of batch normalization, which each rank
  /// computes from its own samples). Call before evaluating or saving. Every rank must call;
  /// blocks.
  void broadcast_buffers();

  /// Number of reductions that started before the last backward pass finished.
  int overlapped_reductions() const { return engine_->overlapped_reductions(); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  comm::Communicator& ranks_;
  double scale_;
  std::unique_ptr<parallel::DataParallel> engine_;
  bool step_is_open_ = false;
};

}  // namespace lockstep
