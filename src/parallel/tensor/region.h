// What lies between the sharded layers of a tensor-parallel model (Shoeybi et al., "Megatron-LM",
// 2019, section 3), and its sequence-parallel form (Korthikanti et al., 2022, section 4.2.2).
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include "comm/communicator.h"
#include "parallel/autograd/deferred.h"
#include "parallel/tensor/sequence_sharding.h"

namespace lockstep::parallel {

using at::Tensor;

/// Collectives that return what they make. A holder, so that autograd nodes can keep it.
class TensorGroup : public torch::CustomClassHolder {
 public:
  /// The communicator must outlive the model and its graphs.
  explicit TensorGroup(comm::Communicator& communicator) : communicator_(&communicator) {}
  int64_t rank() const { return communicator_->rank(); }
  int64_t size() const { return communicator_->size(); }
  comm::Communicator& communicator() const { return *communicator_; }

  Tensor identity(const Tensor& x) const { return x; }
  Tensor sum(const Tensor& x) const;
  /// The largest of each element over the ranks.
  Tensor largest(const Tensor& x) const;
  /// [B, T/n, C] -> [B, T, C]: the ranks' parts of the sequence, in rank order.
  Tensor gather_sequence(const Tensor& x) const;
  /// [B, T, C] -> [B, T/n, C]: this rank's part of the sequence, summed over the ranks. T must be a
  /// multiple of n.
  Tensor scatter_sum_sequence(const Tensor& x) const;
  /// [B, T, C] -> [B, T/n, C]: this rank's part of what all have alike.
  Tensor part_of_sequence(const Tensor& x) const;
  /// sum and scatter_sum_sequence under way: wait() before the result is read.
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

/// The two sides of a pair of sharded layers. Every rank of the group must call, in the same order.
struct Region {
  Group group;
  SequenceSharding sequence = SequenceSharding::kNone;

  bool shards_sequence() const { return sequence == SequenceSharding::kShards; }
  /// To layers that need all of x and hold a part of the weights. Backward: the sum of what the
  /// ranks' parts say of x. While it is under way the rank does what `meanwhile`, where there is
  /// one, holds by then: the weights' gradients of the layers that were entered.
  Tensor enter(const Tensor& x, const std::shared_ptr<DeferredQueue>& meanwhile = nullptr) const;
  /// To layers that every rank computes alike, of the whole sequence. Backward: nothing is summed.
  Tensor gather(const Tensor& x) const;
  /// From a partial sum on every rank to the sum.
  Tensor leave(const Tensor& x) const;
};

}  // namespace lockstep::parallel
