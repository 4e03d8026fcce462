// Data parallelism for any libtorch module and optimizer. Every rank has the whole model and its
// own shard of the batch. Gradients are averaged during the backward pass (Li et al., "PyTorch
// Distributed", VLDB 2020).
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
  /// Reduction of the gradients. Use the mean if the loss is a mean over each rank's samples and
  /// all ranks have the same number of samples. Use the sum if the loss is a sum.
  enum class Gradient { kMeanOfRanks, kSumOfRanks } gradient = Gradient::kMeanOfRanks;
  /// Maximum size of a gradient bucket in megabytes.
  double bucket_megabytes = 25;
  /// If true, parameters that do not contribute to the loss get a zero gradient. If false, they
  /// cause an Error with their names.
  bool find_unused_parameters = false;
  /// Data type of gradients during communication; nullopt: their own type.
  std::optional<at::ScalarType> reduce_type{};
};

/// Averages or sums a module's gradients over all ranks. Parameters keep their identity, so the
/// optimizer may be created before or after; their storage moves to flat buffers. Not thread-safe.
class DistributedDataParallel {
 public:
  /// Broadcasts rank 0's parameters and buffers. Parameters must already be on their final device.
  /// Must be called on every rank of the group, with modules that have the same parameters;
  /// otherwise throws Error (config) with the first difference. The group must outlive this object.
  DistributedDataParallel(
      std::shared_ptr<torch::nn::Module> module,
      comm::Communicator& ranks,
      const DistributedDataParallelOptions& options = {});
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  enum class MicroBatch { kMore, kLast };
  /// Runs loss.backward() for a scalar loss of this rank's samples and clears previous gradients,
  /// so zero_grad() is not needed. After kLast, each parameter's grad() is the reduced gradient,
  /// valid until the next call. After kMore, no gradient is available yet, and the next call
  /// accumulates without communication. Must be called the same number of times on every rank.
  /// Blocks until the gradients are available. Throws Error (config) with the names of parameters
  /// without a gradient, or Error (peer lost).
  void backward(const at::Tensor& loss, MicroBatch which = MicroBatch::kLast);

  /// Broadcasts rank 0's buffers, such as running statistics of batch normalization, which each
  /// rank computes from its own samples. Call before evaluating or saving. Must be called on every
  /// rank. Blocks.
  void broadcast_buffers();

  /// Returns the number of reductions that started before the last backward pass finished.
  int overlapped_reductions() const { return engine_->overlapped_reductions(); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  comm::Communicator& ranks_;
  double scale_;
  std::unique_ptr<parallel::DataParallel> engine_;
  bool step_is_open_ = false;
};

}  // namespace lockstep
