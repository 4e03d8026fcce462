// Pipeline stage as its executor sees it: a function from tensors to tensors.
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

  /// Returns the stage's outputs for micro-batch `micro_batch`, with a graph if gradients are
  /// enabled. `inputs` are the previous stage's outputs, in order, as leaves; empty on the first
  /// stage. The last stage returns scalars, whose sum is the loss.
  virtual Tensors forward(int micro_batch, const Tensors& inputs) = 0;
  /// The leaves whose gradients the backward pass computes.
  virtual Tensors parameters() = 0;
  /// Called around each micro-batch's accumulation of gradients into the parameters. `last`: the
  /// last one of this step.
  virtual void begin_accumulation(bool /*last*/) {}
  virtual void end_accumulation() {}
  /// Queue of deferred weight gradients of the stage's layers; null: not deferred.
  virtual DeferredQueue* deferred() { return nullptr; }
};

}  // namespace lockstep::parallel
