// Interface between a pipeline stage and its executor. A stage is a function from tensors to
// tensors.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/autograd/deferred.h"

namespace lockstep::parallel {

using at::Tensor;
using Tensors = std::vector<Tensor>;

class Stage {
 public:
  Stage() = default;
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// Returns the stage's outputs for a micro-batch, with a graph if gradients are enabled. `inputs`
  /// are the outputs of the previous stage, in order, as leaves; empty on the first stage. The last
  /// stage returns scalars whose sum is the loss.
  virtual Tensors forward(int micro_batch, const Tensors& inputs) = 0;
  /// Returns the leaves whose gradients the backward pass computes.
  virtual Tensors parameters() = 0;
  /// Called before and after each accumulation of a micro-batch's gradients into the parameters.
  /// `last`: last accumulation of this step.
  virtual void begin_accumulation(bool /*last*/) {}
  virtual void end_accumulation() {}
  /// Returns the queue of the layers' deferred weight gradients; null: not deferred.
  virtual DeferredQueue* deferred() { return nullptr; }
};

}  // namespace lockstep::parallel
