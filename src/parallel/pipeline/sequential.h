// The pipeline of any torch::nn::Sequential, for programs that bring their own model.
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

/// A Sequential cut into stages of consecutive modules. What goes from module to module is a
/// Tensor, or a std::tuple of two to eight Tensors of any shapes and types; between stages, their
/// shapes and types are learned from the first micro-batch of its shape. No dim needs to be the
/// batch.
class SequentialPipeline {
 public:
  /// Of the last module's outputs for a micro-batch: a scalar to be minimised. The sum over the
  /// micro-batches is what gradients are of.
  using Loss = std::function<Tensor(const Tensors& outputs, int micro_batch)>;

  /// `modules` is the whole model, equal on every rank of `group`; each keeps the modules of its
  /// stages alone. options.split: "auto" and "parameters" are both even numbers of parameters; by
  /// hand, the numbers of modules. Zero-bubble schedules run; all gradients are then made with the
  /// input's. Throws Error (config): fewer modules than stages, and what Schedules throws.
  SequentialPipeline(
      const torch::nn::Sequential& modules,
      const PipelineOptions& options,
      comm::Communicator& group,
      c10::Device device = c10::Device(c10::kCPU));
  ~SequentialPipeline();

  /// Forward and backward passes; gradients are added to the parameters'. `inputs` [micro-batches]
  /// are the first module's arguments, which the first stage's rank reads; others may give empty
  /// tuples, as many. `loss` is called on the last stage's rank. Returns the summed loss, on every
  /// rank. Every rank must call. Error (config): a module that gives something else than tensors.
  double forward_backward(std::span<const Tensors> inputs, const Loss& loss);

  /// Those of this rank's stages.
  Tensors parameters() const;
  Schedules& schedules() { return schedules_; }

 private:
  comm::Communicator& group_;
  Schedules schedules_;
  std::vector<std::unique_ptr<SequentialStage>> stages_;
  Mailbox mailbox_;
};

}  // namespace lockstep::parallel
