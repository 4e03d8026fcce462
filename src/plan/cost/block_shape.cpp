// Computes the sizes of a block's operations on one rank.
#include "plan/cost/block_shape.h"

#include <cmath>

namespace lockstep::plan {

double BlockShape::key_tokens() const {
  double sum = 0;
  for (size_t i = 0; i < attentions; ++i) {
    sum += attention.at(i).key_tokens;
  }
  return sum;
}

double BlockShape::scores() const {
  double sum = 0;
  for (size_t i = 0; i < attentions; ++i) {
    sum += heads * tokens * attention.at(i).keys_length;
  }
  return sum;
}

BlockShape shape_of(const Job& job, BlockKind kind) {
  const model::ModelConfig& model = job.model;
  const BlockParts& parts = parts_of(kind);
  const double tensor = job.mesh.tensor;
  BlockShape shape{};
  shape.tokens = job.micro_tokens(parts.stream);
  shape.hidden = static_cast<double>(model.hidden_size);
  shape.heads = std::ceil(static_cast<double>(model.heads) / tensor);
  shape.head_dim = static_cast<double>(model.head_dim);
  shape.queries = shape.heads * shape.head_dim;
  shape.keys = std::ceil(static_cast<double>(model.kv_heads) / tensor) * shape.head_dim;
  shape.width = std::ceil(inner_width(model, kind) / tensor);
  shape.matrices = model.gated_mlp ? 2 : 1;
  shape.sublayers = parts.sublayers();
  shape.ends_stream = parts.ends_stream;
  shape.attentions = parts.attentions;
  for (size_t i = 0; i < parts.attentions; ++i) {
    const AttentionPart& part = parts.attention[i];
    shape.attention[i] = {
        job.micro_tokens(part.keys),
        static_cast<double>(job.length(parts.stream)),
        static_cast<double>(job.length(part.keys)),
        part.sees == AttentionPart::Sees::kPast ? 0.5 : 1,
        part.keys == parts.stream};
  }
  return shape;
}

}  // namespace lockstep::plan
