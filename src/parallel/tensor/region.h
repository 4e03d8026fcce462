// Boundaries between the sharded layers of a tensor-parallel model (Shoeybi et al., "Megatron-LM",
// 2019, section 3), with optional sequence parallelism (Korthikanti et al., 2022, section 4.2.2).
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include "comm/communicator.h"
#include "parallel/autograd/deferred.h"
#include "parallel/tensor/sequence_sharding.h"

namespace lockstep::parallel {

using at::Tensor;

/// Collectives that return their result. Derives from a torch holder, so that autograd nodes can
/// store it.
class TensorGroup : public torch::CustomClassHolder {
 public:
  /// `communicator` must outlive the model and its autograd graphs.
  explicit TensorGroup(comm::Communicator& communicator) : communicator_(&communicator) {}
  int64_t rank() const { return communicator_->rank(); }
  int64_t size() const { return communicator_->size(); }
  comm::Communicator& communicator() const { return *communicator_; }

  Tensor identity(const Tensor& x) const { return x; }
  Tensor sum(const Tensor& x) const;
  /// Returns the element-wise maximum over the ranks.
  Tensor largest(const Tensor& x) const;
  /// [B, T/n, C] -> [B, T, C]: gathers the ranks' sequence shards in rank order.
  Tensor gather_sequence(const Tensor& x) const;
  /// [B, T, C] -> [B, T/n, C]: sums over the ranks and returns this rank's sequence shard. T must
  /// be a multiple of n.
  Tensor scatter_sum_sequence(const Tensor& x) const;
  /// [B, T, C] -> [B, T/n, C]: returns this rank's shard of a replicated tensor.
  Tensor part_of_sequence(const Tensor& x) const;
  /// An asynchronous sum or scatter_sum_sequence. Call pending.wait() before reading the result.
  struct Sum {
    Tensor result, from;
    comm::Pending pending;
  };
  Sum start_sum(const Tensor& x) const;
  Sum start_scatter_sum(const Tensor& x) const;

 private:
  comm::Communicator* communicator_;
};
using Group = c10::intrusive_ptr<TensorGroup>;

/// Entry and exit of a group of sharded layers. All ranks of the group must make the same calls in
/// the same order.
struct Region {
  Group group;
  SequenceSharding sequence = SequenceSharding::kNone;

  bool shards_sequence() const { return sequence == SequenceSharding::kShards; }
  /// Entry to layers that read all of x and hold shards of the weights. The backward pass sums the
  /// gradient of x over the ranks; meanwhile the rank runs the work in `meanwhile`, if set, which
  /// contains the weight gradients of these layers.
  Tensor enter(const Tensor& x, const std::shared_ptr<DeferredQueue>& meanwhile = nullptr) const;
  /// Entry to layers that every rank computes identically on the whole sequence. The backward pass
  /// does not sum.
  Tensor gather(const Tensor& x) const;
  /// Exit: sums the partial results over the ranks.
  Tensor leave(const Tensor& x) const;
};

}  // namespace lockstep::parallel
