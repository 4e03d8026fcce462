// Shards micro-batches along the sequence.
#include "parallel/ranks/sequence_part.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "ops/token_loss.h"

namespace lockstep::parallel {
namespace {

using at::Tensor;

Tensor select(const Tensor& x, const std::vector<PositionRun>& runs) {  // [B, T] -> [B, L]
  std::vector<Tensor> parts;
  for (const PositionRun& run : runs) {
    parts.push_back(x.narrow(1, run.whole, run.count));
  }
  return at::cat(parts, 1);
}

}  // namespace

int64_t SequencePart::multiple() const {
  return (context_ranks > 1 ? 2 * context_ranks : 1) * tensor_ranks;
}

std::vector<PositionRun> SequencePart::runs_of_context(int rank, int64_t length) const {
  if (context_ranks == 1) {
    return {{0, 0, length}};
  }
  const int64_t chunk = length / 2;
  return {{0, rank * chunk, chunk}, {chunk, (2 * context_ranks - 1 - rank) * chunk, chunk}};
}

std::vector<PositionRun> SequencePart::runs(int64_t length) const {
  const int64_t begin = tensor_rank * length, end = begin + length;
  std::vector<PositionRun> mine;
  for (const PositionRun& run : runs_of_context(context_rank, length * tensor_ranks)) {
    const int64_t first = std::max(begin, run.local);
    const int64_t last = std::min(end, run.local + run.count);
    if (first < last) {
      mine.push_back({first - begin, run.whole + first - run.local, last - first});
    }
  }
  return mine;
}

Tensor SequencePart::places(int64_t length) const {
  Tensor places = at::empty({length}, at::kLong);
  for (const PositionRun& run : runs(length)) {
    places.narrow(0, run.local, run.count).copy_(at::arange(run.whole, run.whole + run.count));
  }
  return places;
}

namespace {

/// Returns the number of padding positions for a sequence of `length`.
int64_t padding_of(int64_t length, const SequencePart& part) {
  return (part.multiple() - length % part.multiple()) % part.multiple();
}

/// Shards the source of an encoder-decoder. The mask is not sharded, because attention reads all of
/// it.
void shard_source(nn::ForwardInputs& inputs, const SequencePart& part) {
  const int64_t length = inputs.source.size(1), padding = padding_of(length, part);
  const auto runs =
      part.runs_of_context(part.context_rank, (length + padding) / part.context_ranks);
  inputs.source = select(at::constant_pad_nd(inputs.source, {0, padding}, 0), runs);
  if (part.context_ranks > 1) {
    inputs.whole_source_length = length;
    const Tensor places =
        at::arange(length + padding, inputs.source.options()).clamp_max(length - 1);
    inputs.source_positions = select(places.unsqueeze(0), runs)[0];
  } else if (padding > 0) {
    const Tensor mask =
        inputs.source_mask.defined()
            ? inputs.source_mask
            : at::ones({inputs.source.size(0), length}, inputs.source.options().dtype(at::kBool));
    inputs.source_mask = at::constant_pad_nd(mask, {0, padding}, 0);
  }
}

}  // namespace

nn::ForwardInputs shard_inputs(const nn::ForwardInputs& inputs, const SequencePart& part) {
  if (part.is_whole()) {
    return inputs;
  }
  nn::ForwardInputs mine = inputs;
  if (mine.source.defined()) {
    shard_source(mine, part);
  }
  const int64_t length = inputs.ids.size(1), padding = padding_of(length, part);
  if (part.context_ranks == 1 && padding == 0) {
    return mine;
  }
  const int64_t rows = inputs.ids.size(0);
  const auto runs =
      part.runs_of_context(part.context_rank, (length + padding) / part.context_ranks);
  mine.whole_length = length;
  mine.ids = select(at::constant_pad_nd(inputs.ids, {0, padding}, 0), runs);
  if (inputs.real_tokens.defined()) {
    mine.real_tokens = select(at::constant_pad_nd(inputs.real_tokens, {0, padding}, 0), runs);
  }
  if (inputs.token_types.defined()) {
    mine.token_types = select(at::constant_pad_nd(inputs.token_types, {0, padding}, 0), runs);
  }
  if (inputs.targets.defined()) {
    nn::Targets& targets = mine.targets;
    targets.tokens =
        select(at::constant_pad_nd(targets.tokens, {0, padding}, ops::kIgnoredTarget), runs);
    for (Tensor* of_positions :
         {&targets.distributions.positions,
          &targets.distributions.lowered,
          &targets.distributions.level,
          &targets.prompts,
          &targets.documents}) {
      if (of_positions->defined()) {
        *of_positions = select(at::constant_pad_nd(*of_positions, {0, padding}, 0), runs);
      }
    }
  }
  if (mine.source.defined() && part.context_ranks == 1) {
    return mine;  // whole sequences whose positions start at 0
  }
  const Tensor positions = inputs.positions.defined()
                               ? inputs.positions
                               : at::arange(length, inputs.ids.options()).expand({rows, length});
  const Tensor last = positions.narrow(1, length - 1, 1).expand({rows, padding});
  mine.positions = select(at::cat({positions, last}, 1), runs);
  return mine;
}

std::vector<nn::ForwardInputs> shard_inputs(
    std::span<const nn::ForwardInputs> batches, const SequencePart& part) {
  std::vector<nn::ForwardInputs> own;
  for (const nn::ForwardInputs& inputs : batches) {
    own.push_back(shard_inputs(inputs, part));
  }
  return own;
}

}  // namespace lockstep::parallel
