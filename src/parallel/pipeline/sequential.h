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

/// A Sequential split into stages of consecutive modules. Modules exchange a Tensor or a std::tuple
/// of two to eight Tensors of any shapes and types. Between stages, shapes and types are taken from
/// the first micro-batch with a given input shape. Tensors do not need a batch dimension.
class SequentialPipeline {
 public:
  /// Returns the scalar loss of the last module's outputs for a micro-batch. The gradients are
  /// those of the sum over micro-batches.
  using Loss = std::function<Tensor(const Tensors& outputs, int micro_batch)>;

  /// `modules` is the whole model and must be equal on every rank of `group`; each rank keeps only
  /// the modules of its stages. In options.split, "auto" and "parameters" both balance the number
  /// of parameters; an explicit split lists numbers of modules. Zero-bubble schedules are
  /// supported, but weight gradients are computed together with the input gradient. Throws Error
  /// (config) if there are fewer modules than stages, and the errors of Schedules.
  SequentialPipeline(
      const torch::nn::Sequential& modules,
      const PipelineOptions& options,
      comm::Communicator& group,
      c10::Device device = c10::Device(c10::kCPU));
  ~SequentialPipeline();

  /// Runs forward and backward passes and adds the gradients to those of the parameters. `inputs`
  /// [micro-batches] are the arguments of the first module. Only the first stage's rank reads them;
  /// other ranks may pass the same number of empty tuples. `loss` is called on the last stage's
  /// rank. Returns the summed loss on every rank. Must be called on every rank. Throws Error
  /// (config) if a module returns anything other than tensors.
  double forward_backward(std::span<const Tensors> inputs, const Loss& loss);

  /// Returns the parameters of this rank's stages.
  Tensors parameters() const;
  Schedules& schedules() { return schedules_; }

 private:
  comm::Communicator& group_;
  Schedules schedules_;
  std::vector<std::unique_ptr<SequentialStage>> stages_;
  Mailbox mailbox_;
};

}  // namespace lockstep::parallel
