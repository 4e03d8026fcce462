// Attention over a sequence of which each rank holds a part.
#pragma once

#include "comm/communicator.h"
#include "nn/layers.h"
#include "parallel/ranks/sequence_part.h"

namespace lockstep::parallel {

using at::Tensor;

/// Ring attention: a rank keeps its queries, and every rank's keys and values pass by it, sent on
/// while they are used (Liu et al., "Ring Attention with Blockwise Transformers", 2023, section 3).
/// A rank sends (n - 1) times its keys and values in the forward pass, and in the backward pass
/// that and n times their gradients. Chunks lie in zigzag order, so that every rank has as much to
/// do.
struct RingAttention final : nn::Attention {
  /// `group` must outlive it, and its graphs.
  RingAttention(const nn::Attention& plain, const SequencePart& part, comm::Communicator& group)
      : Attention(plain),
        part(part),
        group(&group) {}
  SequencePart part;
  comm::Communicator* group;
  /// The context must hold the length of the whole sequence, and no cache. Every rank of the group
  /// must call.
  Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const nn::ForwardContext& context) const override;
};

/// Which of a model's sequences: that which an encoder reads, or that of the ids.
enum class Sequence { kSource, kTarget };

/// Ring attention with a bias of the scores and a mask, of queries to the keys of their own or of
/// the other sequence. The bias [H, L, S] and the mask are of the rank's queries and of all keys of
/// the whole sequence; the bias's gradient is what these queries say. Where a query sees no key it
/// gets zero.
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

/// Attention where parts of the sequence are exchanged for parts of the heads and back (Jacobs et
/// al., "DeepSpeed Ulysses", 2023, section 3.1): each rank attends with some heads to all of the
/// sequence. A rank sends (n - 1) / n of its queries, keys, values and outputs.
struct UlyssesAttention final : nn::Attention {
  UlyssesAttention(const nn::Attention& plain, const SequencePart& part, comm::Communicator& group)
      : Attention(plain),
        part(part),
        group(&group) {}
  SequencePart part;
  comm::Communicator* group;
  /// The query heads must divide by the group's size. Where key-value heads do not, copies of them
  /// are sent.
  Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const nn::ForwardContext& context) const override;
};

}  // namespace lockstep::parallel
