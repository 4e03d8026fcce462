// Attention over sequences that are sharded over ranks.
#pragma once

#include "comm/communicator.h"
#include "nn/layers.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

using at::Tensor;

/// Ring attention. Each rank keeps its queries while the keys and values of all ranks are sent
/// around the ring (Liu et al., "Ring Attention with Blockwise Transformers", 2023, section 3).
/// Each rank sends keys and values n - 1 times in the forward pass and again in the backward pass,
/// plus their gradients n times. Zigzag chunk order balances the work.
struct RingAttention final : nn::Attention {
  /// `group` must outlive this module and its autograd graphs.
  RingAttention(const nn::Attention& plain, const SequencePart& part, comm::Communicator& group)
      : Attention(plain),
        part(part),
        group(&group) {}
  SequencePart part;
  comm::Communicator* group;
  /// The context must have the length of the whole sequence and no cache. Must be called on every
  /// rank of the group.
  Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const nn::ForwardContext& context) const override;
};

/// The model's sequence that is sharded: the encoder's source or the decoder's target.
enum class Sequence { kSource, kTarget };

/// Ring attention with an additive bias and a mask, for self- and cross-attention. The bias [H, L,
/// S] and the mask cover this rank's queries and all keys of the sequence; the gradient of the bias
/// covers the same queries. The output of queries without a visible key is zero.
struct BiasedRingAttention final : nn::BiasedAttention {
  BiasedRingAttention(
      const nn::BiasedAttention& plain,
      const SequencePart& part,
      comm::Communicator& group,
      Sequence queries,
      Sequence keys)
      : BiasedAttention(plain),
        part(part),
        group(&group),
        queries(queries),
        keys(keys) {}
  SequencePart part;
  comm::Communicator* group;
  Sequence queries, keys;
  Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const Tensor& bias,
      const Tensor& visible,
      const nn::ForwardContext& context) const override;
};

/// Attention that exchanges sequence shards for head shards and back (Jacobs et al., "DeepSpeed
/// Ulysses", 2023, section 3.1). Each rank computes some heads over the whole sequence and sends (n
/// - 1) / n of its queries, keys, values and outputs.
struct UlyssesAttention final : nn::Attention {
  UlyssesAttention(const nn::Attention& plain, const SequencePart& part, comm::Communicator& group)
      : Attention(plain),
        part(part),
        group(&group) {}
  SequencePart part;
  comm::Communicator* group;
  /// The number of query heads must be divisible by the group size. If the number of key-value
  /// heads is not, key-value heads are replicated before they are sent.
  Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const nn::ForwardContext& context) const override;
};

}  // namespace lockstep::parallel
