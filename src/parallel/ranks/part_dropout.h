// Dropout and noise for a rank's shard of the activations.
#pragma once

#include "mesh/cut.h"
#include "nn/layers.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

/// Generates the mask of the whole activations and applies the slice for this rank's positions and
/// columns.
struct PartDropout : nn::Dropout {
  explicit PartDropout(const nn::Dropout& plain) : Dropout(plain) {}
  SequencePart part = {};
  mesh::Range columns = {};
  int64_t width = 0;  // width of the whole activations; 0: width of the input

 protected:
  at::Tensor masked(const at::Tensor& x, const at::Tensor& keys) const override;
};

/// Adds the noise of this rank's positions of the whole embeddings.
class PartNoise final : public nn::EmbeddingNoise {
 public:
  PartNoise(const nn::EmbeddingNoise& plain, const SequencePart& part)
      : EmbeddingNoise(plain),
        part_(part) {}

 protected:
  at::Tensor noisy(const at::Tensor& x, double bound, const at::Tensor& keys) const override;

 private:
  SequencePart part_;
};

}  // namespace lockstep::parallel
