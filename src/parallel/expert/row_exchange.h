// Exchange of token rows with the ranks that hold their experts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"

namespace lockstep::parallel {

using at::Tensor;

/// Destinations of a pass's token rows. The ranks of the group hold consecutive experts; the first
/// E % n ranks hold one more.
class RowRoute {
 public:
  /// `counts` [ranks, E] (int64 on the CPU): number of rows that each rank sends to each expert.
  /// `number` distinguishes routes that are in flight at the same time. The group must outlive the
  /// autograd graphs.
  RowRoute(const Tensor& counts, comm::Communicator& group, int number);

  /// Sends this rank's rows [R, C], which are sorted by expert. Returns the rows of all ranks for
  /// this rank's experts, sorted by expert, then by rank. Must be called on every rank; every rank
  /// must also run the backward pass.
  Tensor there(const Tensor& rows) const { return start(rows)(); }
  /// Asynchronous variant of there(): starts the exchange and returns a function that completes it
  /// and must be called once. Work between the two calls overlaps with the transfer of rows and, in
  /// the backward pass, of their gradients.
  std::function<Tensor()> start(const Tensor& rows) const;
  /// Sends the experts' outputs, in the order of there(), back to the ranks that own the rows.
  /// Asynchronous like start().
  std::function<Tensor()> start_back(const Tensor& rows) const;
  /// Returns the number of received rows for each expert of the model; zero for experts of other
  /// ranks.
  const std::vector<int64_t>& own_counts() const { return own_counts_; }

 private:
  comm::Communicator* group_;
  int number_;
  std::vector<int64_t> sent_, received_;  // number of rows, by rank
  std::vector<int64_t> own_counts_;
  Tensor by_expert_, by_rank_;  // int64: permutation that sorts received rows by expert, and its
                                // inverse
};

/// Creates the routes for the parts of a pass. `counts` holds this rank's number of rows per part
/// and per expert of the model. Must be called on every rank of the group.
std::vector<RowRoute> make_routes(
    const std::vector<std::vector<int64_t>>& counts, comm::Communicator& group);

}  // namespace lockstep::parallel
