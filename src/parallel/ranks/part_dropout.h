// Dropout of the part of the activations that a rank holds.
#pragma once

#include "mesh/cut.h"
#include "nn/layers.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

/// Draws the mask of the whole: of the positions and of the columns that the rank holds.
struct PartDropout : nn::Dropout {
  explicit PartDropout(const nn::Dropout& plain) : Dropout(plain) {}
  SequencePart part = {};
  mesh::Range columns = {};
  int64_t width = 0;  // of the whole; 0: that of what comes

 protected:
  at::Tensor masked(const at::Tensor& x, const at::Tensor& keys) const override;
};

}  // namespace lockstep::parallel
