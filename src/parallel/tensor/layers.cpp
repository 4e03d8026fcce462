// Tensor-parallel layers.
#include "parallel/tensor/layers.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "parallel/tensor/token_loss.h"

namespace lockstep::parallel {

Tensor ShardedToAllLinear::forward(const Tensor& x, const nn::ForwardContext& context) const {
  const Tensor y = region.leave(Linear::forward(x, context));
  return bias.defined() ? y + bias : y;
}

void ShardedToAllLinear::visit_parameters(const nn::ParameterFunction& function) {
  Linear::visit_parameters(function);
  function({"bias", bias});
}

Tensor PartOfSumLinear::forward(const Tensor& x, const nn::ForwardContext& context) const {
  const Tensor y = Linear::forward(x, context);
  return bias.defined() ? y + bias / ranks : y;
}

void PartOfSumLinear::visit_parameters(const nn::ParameterFunction& function) {
  Linear::visit_parameters(function);
  function({"bias", bias});
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

VocabularyParallelEmbedding::Places VocabularyParallelEmbedding::places_of(
    const Tensor& ids) const {
  if (ids.device().is_cpu()) {
    const auto [least, most] = at::aminmax(ids);
    for (const int64_t id : {least.item<int64_t>(), most.item<int64_t>()}) {
      if (id < 0 || id >= vocabulary) {
        throw Error(
            ErrorKind::kData,
            fmt::format("token id {} is not in the model's vocabulary of {}", id, vocabulary),
            "use the model's tokenizer, or model.resize_embeddings=true");
      }
    }
  }
  const Tensor local = ids.to(weight.device()) - rows.begin;  // [B, T]
  const Tensor elsewhere = (local < 0).logical_or(local >= rows.size());
  return {local.masked_fill(elsewhere, 0), elsewhere.unsqueeze(-1)};
}

Tensor VocabularyParallelEmbedding::forward(const Tensor& ids) const {
  const Places places = places_of(ids);
  return region.leave(rows_of(places.local).masked_fill(places.elsewhere, 0));
}

nn::Tensors VocabularyParallelEmbedding::forward_each(
    const nn::Tensors& ids, const std::vector<const nn::TableAdapter*>& adapters) const {
  nn::Tensors local, elsewhere;
  for (const Tensor& sequence : ids) {
    Places places = places_of(sequence);
    local.push_back(std::move(places.local));
    elsewhere.push_back(std::move(places.elsewhere));
  }
  nn::Tensors parts = rows_of_each(local, adapters);  // [B, T_i, C]
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i] = region.leave(parts[i].masked_fill(elsewhere[i], 0));
  }
  return parts;
}

Tensor SequenceShardedPositions::forward(
    const Tensor& positions, int64_t first, int64_t length) const {
  const int64_t part = length / region.group->size(), begin = region.group->rank() * part;
  return positions.defined() ? rows_of(positions.narrow(1, begin, part))
                             : rows_from(first + begin, part);
}

Tensor VocabularyParallelHead::loss(
    const Tensor& hidden,
    const Tensor& vocabulary,
    const nn::Targets& targets,
    const Tensor& weights,
    double label_smoothing) const {
  ops::TokenLossOptions options = loss_options(targets, weights, hidden);
  options.label_smoothing = label_smoothing;
  return vocabulary_parallel_loss(
      hidden.flatten(0, 1),
      vocabulary,
      targets.tokens.flatten().to(hidden.device()),
      shard(),
      std::move(options));
}

Tensor VocabularyParallelHead::logits(const Tensor& hidden, const Tensor& vocabulary) const {
  const Tensor mine = logits_of(hidden, vocabulary);  // [B, T, V/n]
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

nn::Scores VocabularyParallelHead::scores(
    const Tensor& hidden, const Tensor& vocabulary, const nn::Targets& targets) const {
  const Tensor rows = hidden.flatten(0, 1);
  const ops::TokenLossOptions options = loss_options(targets, {}, hidden);
  return scores_of(
      vocabulary_parallel_scores(
          rows, vocabulary, targets.tokens.flatten().to(hidden.device()), shard(), cap),
      targets,
      options.distributions.defined()
          ? vocabulary_parallel_divergences(rows, vocabulary, shard(), options)
          : Tensor());
}

}  // namespace lockstep::parallel
