#include "parallel/tensor/layers.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "nn/forward_context.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "parallel/tensor/token_loss.h"

namespace lockstep::parallel {

Tensor EnteringNorm::forward(const Tensor& x) const {
  return region.enter(normalize(x, region.share(weight), region.share(bias)), weight_gradients);
}

ops::SumAndNorm EnteringNorm::add_forward(const Tensor& x, const Tensor& residual) const {
  ops::SumAndNorm both = add_and_normalize(x, residual, region.share(weight), region.share(bias));
  both.norm = region.enter(both.norm, weight_gradients);
  return both;
}

Tensor ShardedToAllLinear::forward(const Tensor& x) const {
  const Tensor y = region.leave(product(x, weight, std::nullopt));
  return bias.defined() ? y + region.share(bias) : y;
}

Tensor CopiedHeadsLinear::forward(const Tensor& x) const {
  const auto whole_bias = bias.defined() ? std::optional(sum_gradient(bias, copies)) : std::nullopt;
  return product(x, sum_gradient(weight, copies), whole_bias);
}

Tensor ShardedWidthDropout::forward(const Tensor& x, const nn::ForwardContext& context) const {
  if (!context.training() || probability == 0) {
    return x;
  }
  return ops::dropout(
      x, probability, context.dropout_keys(site), {{0, part.begin}, {x.size(1), width}});
}

VocabularyParallelEmbedding::VocabularyParallelEmbedding(
    const nn::TokenEmbedding& plain, Region region, mesh::Range rows, int64_t vocabulary)
    : TokenEmbedding(plain),
      region(std::move(region)),
      rows(rows),
      vocabulary(vocabulary) {
  const bool has_padding_row = padding_row >= rows.begin && padding_row < rows.end;
  padding_row = has_padding_row ? padding_row - rows.begin : -1;
}

Tensor VocabularyParallelEmbedding::forward(const Tensor& ids) const {
  if (ids.device().is_cpu()) {
    const auto [least, most] = at::aminmax(ids);
    for (const int64_t id : {least.item<int64_t>(), most.item<int64_t>()}) {
      if (id < 0 || id >= vocabulary) {
        throw Error(
            ErrorKind::kData,
            fmt::format("token id {} is not in the model's vocabulary of {}", id, vocabulary),
            "use the tokenizer that belongs to the model, or model.resize_embeddings=true");
      }
    }
  }
  const Tensor local = ids.to(weight.device()) - rows.begin;  // [B, T]
  const Tensor elsewhere = (local < 0).logical_or(local >= rows.size());
  const Tensor found =
      ops::embedding(weight, local.masked_fill(elsewhere, 0), padding_row);  // [B, T, C]
  return region.leave(found.masked_fill(elsewhere.unsqueeze(-1), 0));
}

Tensor SequenceShardedPositions::forward(
    const Tensor& positions, int64_t first, int64_t length) const {
  const Tensor shared = region.share(weight);
  const int64_t part = length / region.group->size(), begin = region.group->rank() * part;
  return positions.defined()
             ? ops::embedding(shared, positions.narrow(1, begin, part).to(weight.device()))
             : shared.narrow(0, first + begin, part);
}

Tensor VocabularyParallelHead::loss(
    const Tensor& hidden, const Tensor& vocabulary, const Tensor& targets) const {
  return vocabulary_parallel_loss(
      hidden.flatten(0, 1),
      vocabulary,
      targets.flatten().to(hidden.device()),
      {region.group, rows, vocabulary_size},
      place_of_gradient);
}

Tensor VocabularyParallelHead::logits(const Tensor& hidden, const Tensor& vocabulary) const {
  const Tensor mine = at::linear(hidden, vocabulary);  // [B, T, V/n]
  const int64_t ranks = region.group->size();
  const int64_t widest = mesh::split_evenly(vocabulary_size, ranks, 0).size();
  const Tensor padded = at::constant_pad_nd(mine, {0, widest - rows.size()});
  Tensor all = at::empty({ranks, mine.size(0), mine.size(1), widest}, mine.options());
  region.group->communicator().all_gather(all, padded.contiguous()).wait();
  std::vector<Tensor> parts;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    parts.push_back(
        all[rank].narrow(-1, 0, mesh::split_evenly(vocabulary_size, ranks, rank).size()));
  }
  return at::cat(parts, -1);  // [B, T, V]
}

Tensor VocabularyParallelHead::statistics(
    const Tensor& hidden, const Tensor& vocabulary, const Tensor& targets) const {
  return vocabulary_parallel_statistics(
      hidden.flatten(0, 1),
      vocabulary,
      targets.flatten().to(hidden.device()),
      {region.group, rows, vocabulary_size});
}

}  // namespace lockstep::parallel
