// Exchange of token rows with the ranks of their experts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace lockstep::parallel {

using at::Tensor;

/// Destinations of the rows of a pass. The ranks of the group hold the experts in order, the first
/// E % n ranks one more.
class RowRoute {
 public:
  /// `counts` [ranks, E] int64 on the CPU: every rank's rows for every expert. `number`
  /// distinguishes routes in flight at the same time. The group must outlive the autograd graphs.
  RowRoute(const Tensor& counts, comm::Communicator& group, int number);

  /// This rank's rows [R, C], sorted by expert -> the rows of all ranks for this rank's experts,
  /// sorted by expert, then by rank. Every rank must call, here and in the backward pass.
  Tensor there(const Tensor& rows) const { return start(rows)(); }
  /// The same in two halves; the returned function must be called once. Work between them overlaps
  /// with the transfer of rows, and in the backward pass with that of their gradients.
  std::function<Tensor()> start(const Tensor& rows) const;
  /// Sends the experts' outputs, in that order, back to the ranks of the rows. In two halves, as
  /// above.
  std::function<Tensor()> start_back(const Tensor& rows) const;
  /// Rows of there() for each expert of the model: zero for those of other ranks.
  const std::vector<int64_t>& own_counts() const { return own_counts_; }

 private:
  comm::Communicator* group_;
  int number_;
  std::vector<int64_t> sent_, received_;  // rows, by rank
  std::vector<int64_t> own_counts_;
  Tensor by_expert_, by_rank_;  // int64: positions of received rows when sorted, and the inverse
};

/// Creates the routes of the parts of a pass; `counts` are this rank's rows of each part for each
/// expert of the model. Every rank of the group must call.
std::vector<RowRoute> make_routes(
    const std::vector<std::vector<int64_t>>& counts, comm::Communicator& group);

}  // namespace lockstep::parallel
