// Rows of tokens on their way to the ranks of their experts, and back.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace lockstep::parallel {

using at::Tensor;

/// Where the rows of a pass go. The ranks of the group hold the experts in order, the first E % n
/// of them one more.
class RowRoute {
 public:
  /// `counts` [ranks, E] int64 on the CPU: every rank's rows for every expert. `number` tells
  /// routes apart whose rows are on their way at once. The group must outlive the graphs that are
  /// made.
  RowRoute(const Tensor& counts, comm::Communicator& group, int number);

  /// This rank's rows [R, C], sorted by expert -> those of all ranks for the experts that are here,
  /// sorted by expert, and of one expert by rank. Every rank must call, here and in the backward
  /// pass.
  Tensor there(const Tensor& rows) const { return start(rows)(); }
  /// The same in halves, the other one to be called once: what is computed between them is computed
  /// while rows are on their way, and in the backward pass while their gradients are.
  std::function<Tensor()> start(const Tensor& rows) const;
  /// What the experts here made of these, in that order -> of this rank's rows. Likewise, in
  /// halves.
  std::function<Tensor()> start_back(const Tensor& rows) const;
  /// The rows of there() for each of all experts: zero for those of other ranks.
  const std::vector<int64_t>& own_counts() const { return own_counts_; }

 private:
  comm::Communicator* group_;
  int number_;
  std::vector<int64_t> sent_, received_;  // rows, by rank
  std::vector<int64_t> own_counts_;
  Tensor by_expert_, by_rank_;  // int64: the places of received rows when sorted, and the inverse
};

/// Routes of the parts of a pass; `counts` are this rank's rows of each part for each of all
/// experts. Every rank of the group must call.
std::vector<RowRoute> make_routes(
    const std::vector<std::vector<int64_t>>& counts, comm::Communicator& group);

}  // namespace lockstep::parallel
