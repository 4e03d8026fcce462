// Data parallelism for any libtorch module and any optimizer: every rank has the whole model and
// its own part of the batch, and the gradients are averaged while the backward pass still runs (Li
// et al., "PyTorch Distributed", VLDB 2020).
//
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
class Module;  // <torch/nn.h>
}

namespace lockstep {

struct DistributedDataParallelOptions {
  /// What the gradients become: the mean fits losses that are means over each rank's samples, where
  /// all ranks have equally many; the sum, losses that are sums.
  enum class Gradient { kMeanOfRanks, kSumOfRanks } gradient = Gradient::kMeanOfRanks;
  /// Gradients are reduced in runs of up to so many megabytes.
  double bucket_megabytes = 25;
  /// Parameters that no loss reaches get a gradient of zero; else they are an Error that names
  /// them.
  bool find_unused_parameters = false;
  /// The type of gradients on the wire; none: their own.
  std::optional<at::ScalarType> reduce_type{};
};

/// Makes a module's gradients those of all ranks. Parameters keep their identity (an optimizer may
/// be made before or after), and their storage becomes a part of flat buffers. Not thread-safe.
class DistributedDataParallel {
 public:
  /// Gives every rank the parameters and buffers of rank 0. Parameters must have the device that
  /// they will be used on. Every rank of the group must call, with a module of the same parameters:
  /// Error (config) naming the first that differs. The group must outlive this.
  DistributedDataParallel(
      std::shared_ptr<torch::nn::Module> module,
      comm::Communicator& ranks,
      const DistributedDataParallelOptions& options = {});
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  enum class MicroBatch { kMore, kLast };
  /// loss.backward(), a scalar loss of this rank's samples. After kLast each parameter's grad() is
  /// that of all ranks, and holds until the next call; after kMore there is none yet, and the next
  /// call adds to it without communication before its last. Gradients of before are dropped first:
  /// zero_grad() is not needed. Every rank must call, as often; blocks until the gradients are
  /// there. Error (config) naming parameters without a gradient; (peer lost).
  void backward(const at::Tensor& loss, MicroBatch which = MicroBatch::kLast);

  /// Gives every rank the buffers of rank 0 (running statistics of batch normalisation, which each
  /// rank keeps of its own samples): before evaluating or saving. Every rank must call; blocks.
  void broadcast_buffers();

  /// Reductions that started while the last backward pass still ran.
  int overlapped_reductions() const { return engine_->overlapped_reductions(); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  comm::Communicator& ranks_;
  double scale_;
  std::unique_ptr<parallel::DataParallel> engine_;
  bool step_is_open_ = false;
};

}  // namespace lockstep
