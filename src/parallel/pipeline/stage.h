// A stage of a pipeline, as its executor sees it: a function from tensors to tensors.
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

  /// The stage's outputs for micro-batch `micro_batch`; a graph is recorded where gradients are on.
  /// `inputs` are the outputs of the stage before, in their order, as leaves; none on the first
  /// stage. What the last stage returns is summed up into the loss whose gradient is wanted:
  /// scalars.
  virtual Tensors forward(int micro_batch, const Tensors& inputs) = 0;
  /// The leaves whose gradients the backward pass makes.
  virtual Tensors parameters() = 0;
  /// Around each micro-batch's accumulation of gradients into the parameters. `last`: no other of
  /// this step follows.
  virtual void begin_accumulation(bool /*last*/) {}
  virtual void end_accumulation() {}
  /// Where the stage's layers leave weight gradients for later; null where they leave none.
  virtual DeferredQueue* deferred() { return nullptr; }
};

}  // namespace lockstep::parallel
