// Pipeline parallelism for any torch::nn::Sequential.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/options.h"

namespace torch::nn {
class Sequential;  // <torch/nn.h>
}

namespace lockstep::parallel {

class SequentialStage;

/// A Sequential split into stages of consecutive modules. Modules pass a Tensor or a std::tuple of
/// two to eight Tensors of any shapes and types; between stages, shapes and types are learned from
/// the first micro-batch of each shape. No dimension needs to be the batch.
class SequentialPipeline {
 public:
  /// Scalar loss of the last module's outputs for a micro-batch. Gradients are those of the sum
  /// over the micro-batches.
  using Loss = std::function<Tensor(const Tensors& outputs, int micro_batch)>;

  /// `modules` is the whole model, equal on every rank of `group`; each rank keeps only the modules
  /// of its stages. options.split: "auto" and "parameters" both balance the number of parameters;
  /// explicit splits give numbers of modules. Zero-bubble schedules run, but all gradients are
  /// computed with the input's. Throws Error (config) for fewer modules than stages, and errors of
  /// Schedules.
  SequentialPipeline(
      const torch::nn::Sequential& modules,
      const PipelineOptions& options,
      comm::Communicator& group,
      c10::Device device = c10::Device(c10::kCPU));
  ~SequentialPipeline();

  /// Runs forward and backward passes; gradients are added to the parameters'. `inputs`
  /// [micro-batches] are the first module's arguments, read by the first stage's rank; other ranks
  /// may pass the same number of empty tuples. `loss` is called on the last stage's rank. Returns
  /// the summed loss on every rank. Every rank must call. Throws Error (config) if a module returns
  /// something other than tensors.
  double forward_backward(std::span<const Tensors> inputs, const Loss& loss);

  /// The parameters of this rank's stages.
  Tensors parameters() const;
  Schedules& schedules() { return schedules_; }

 private:
  comm::Communicator& group_;
  Schedules schedules_;
  std::vector<std::unique_ptr<SequentialStage>> stages_;
  Mailbox mailbox_;
};

}  // namespace lockstep::parallel
