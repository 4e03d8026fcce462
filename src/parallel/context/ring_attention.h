// Attention over sequences that are sharded over ranks.
#pragma once

#include "comm/communicator.h"
#include "nn/layers.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

using at::Tensor;

/// Ring attention: each rank keeps its queries, and every rank's keys and values are passed around
/// the ring while they are used (Liu et al., "Ring Attention with Blockwise Transformers", 2023,
/// section 3). A rank sends (n - 1) times its keys and values in the forward pass, and in the
/// backward pass the same plus n times their gradients. Zigzag order of chunks balances the work.
struct RingAttention final : nn::Attention {
  /// `group` must outlive it, and its graphs.
  RingAttention(const nn::Attention& plain, const SequencePart& part, comm::Communicator& group)
      : Attention(plain),
        part(part),
        group(&group) {}
  SequencePart part;
  comm::Communicator* group;
  /// The context must have the length of the whole sequence and no cache. Every rank of the group
  /// must call.
  Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const nn::ForwardContext& context) const override;
};

/// The sequence of the model that is sharded: the encoder's source or the target ids.
enum class Sequence { kSource, kTarget };

/// Ring attention with an additive bias and a mask, for self- and cross-attention. The bias [H, L,
/// S] and the mask cover the rank's queries and all keys of the whole sequence; the gradient of the
/// bias is that of these queries. Queries without a visible key get zero.
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

/// Attention that exchanges shards of the sequence for shards of the heads and back (Jacobs et al.,
/// "DeepSpeed Ulysses", 2023, section 3.1): each rank computes some heads over the whole sequence.
/// A rank sends (n - 1) / n of its queries, keys, values and outputs.
struct UlyssesAttention final : nn::Attention {
  UlyssesAttention(const nn::Attention& plain, const SequencePart& part, comm::Communicator& group)
      : Attention(plain),
        part(part),
        group(&group) {}
  SequencePart part;
  comm::Communicator* group;
  /// The number of query heads must be divisible by the group's size. If the number of key-value
  /// heads is not, replicas of key-value heads are sent.
  Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const nn::ForwardContext& context) const override;
};

}  // namespace lockstep::parallel
