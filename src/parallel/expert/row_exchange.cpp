#include "parallel/expert/row_exchange.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "mesh/cut.h"
#include "ops/host_copies.h"

namespace lockstep::parallel {
namespace {

using comm::P2p;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// A run of rows for each rank; those of this rank stay where they are.
Tensor send_rows(
    const Tensor& rows,
    const std::vector<int64_t>& sent,
    const std::vector<int64_t>& received,
    comm::Communicator& group) {
  const Tensor in = rows.contiguous();
  const int64_t all = std::accumulate(received.begin(), received.end(), int64_t{0});
  Tensor out = at::empty({all, in.size(1)}, in.options());
  std::vector<P2p> transfers;
  int64_t from = 0, to = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    const auto i = static_cast<size_t>(rank);
    const Tensor leaving = in.narrow(0, from, sent[i]), coming = out.narrow(0, to, received[i]);
    if (rank == group.rank()) {
      coming.copy_(leaving);
    } else {
      if (sent[i] > 0) {
        transfers.push_back({P2p::Direction::kSend, leaving, rank});
      }
      if (received[i] > 0) {
        transfers.push_back({P2p::Direction::kReceive, coming, rank});
      }
    }
    from += sent[i];
    to += received[i];
  }
  group.exchange(transfers).wait();
  return out;
}

struct Way : torch::CustomClassHolder {
  std::vector<int64_t> sent, received;
  comm::Communicator* group = nullptr;
};

/// Its backward pass is the way back.
struct SendRows : torch::autograd::Function<SendRows> {
  static Tensor forward(
      AutogradContext* context, const Tensor& rows, const c10::intrusive_ptr<Way>& way) {
    context->saved_data["way"] = c10::IValue::make_capsule(way);
    return send_rows(rows, way->sent, way->received, *way->group);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto way =
        c10::static_intrusive_pointer_cast<Way>(context->saved_data["way"].toCapsule());
    return {send_rows(gradients[0], way->received, way->sent, *way->group), Tensor()};
  }
};

Tensor send(
    const Tensor& rows,
    const std::vector<int64_t>& sent,
    const std::vector<int64_t>& received,
    comm::Communicator& group) {
  auto way = c10::make_intrusive<Way>();
  way->sent = sent;
  way->received = received;
  way->group = &group;
  return SendRows::apply(rows, way);
}

/// [ranks, E] int64 on the CPU: every rank's rows for every expert.
Tensor gather_counts(const std::vector<int64_t>& counts, comm::Communicator& group) {
  const Tensor own = at::tensor(counts, at::kLong);
  Tensor all = at::empty({group.size(), own.numel()}, at::kLong);
  group.all_gather(all, own).wait();
  return all;
}

}  // namespace

RowRoute::RowRoute(const std::vector<int64_t>& counts, comm::Communicator& group)
    : group_(&group),
      own_counts_(counts.size(), 0) {
  const Tensor all = gather_counts(counts, group);
  const auto count = all.accessor<int64_t, 2>();
  const int64_t ranks = group.size();
  const auto experts = std::ssize(counts);
  const mesh::Range own = mesh::split_evenly(experts, ranks, group.rank());
  std::vector<std::vector<int64_t>> places(static_cast<size_t>(experts));  // as they are received
  int64_t place = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const mesh::Range theirs = mesh::split_evenly(experts, ranks, rank);
    sent_.push_back(
        std::accumulate(counts.begin() + theirs.begin, counts.begin() + theirs.end, int64_t{0}));
    const int64_t first = place;
    for (int64_t expert = own.begin; expert < own.end; ++expert) {
      const auto i = static_cast<size_t>(expert);
      own_counts_[i] += count[rank][expert];
      for (int64_t row = 0; row < count[rank][expert]; ++row) {
        places[i].push_back(place++);
      }
    }
    received_.push_back(place - first);
  }
  std::vector<int64_t> order;
  for (const std::vector<int64_t>& of_expert : places) {
    order.insert(order.end(), of_expert.begin(), of_expert.end());
  }
  by_expert_ = at::tensor(order, at::kLong);
  by_rank_ = by_expert_.argsort();
}

Tensor RowRoute::there(const Tensor& rows) const {
  return send(rows, sent_, received_, *group_).index_select(0, ops::to_device(by_expert_, rows.device()));
}

Tensor RowRoute::back(const Tensor& rows) const {
  return send(rows.index_select(0, ops::to_device(by_rank_, rows.device())), received_, sent_, *group_);
}

}  // namespace lockstep::parallel
