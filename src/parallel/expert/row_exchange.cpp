// Asynchronous all-to-all exchange of token rows.
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

/// One exchange of rows between ranks, with its buffers: rows in the forward pass, gradients in the
/// backward pass.
struct RowWay : torch::CustomClassHolder {
  std::vector<int64_t> sent, received;
  comm::Communicator* group = nullptr;
  int tag = 0;

  /// Starts to send a run of rows to each rank; this rank's own rows are not sent. Returns the
  /// tensor that finish() completes.
  Tensor start(const Tensor& rows, bool is_back);
  Tensor finish();

 private:
  Tensor in_, out_;  // send and receive buffers of the messages
  comm::Pending pending_;
};

Tensor RowWay::start(const Tensor& rows, bool is_back) {
  const std::vector<int64_t>& leave = is_back ? received : sent;
  const std::vector<int64_t>& come = is_back ? sent : received;
  in_ = rows.contiguous();
  const int64_t all = std::accumulate(come.begin(), come.end(), int64_t{0});
  out_ = at::empty({all, in_.size(1)}, in_.options());
  std::vector<P2p> transfers;
  int64_t from = 0, to = 0;
  for (int rank = 0; rank < group->size(); ++rank) {
    const auto i = static_cast<size_t>(rank);
    const Tensor leaving = in_.narrow(0, from, leave[i]), coming = out_.narrow(0, to, come[i]);
    if (rank == group->rank()) {
      coming.copy_(leaving);
    } else {
      if (leave[i] > 0) {
        transfers.push_back({P2p::Direction::kSend, leaving, rank, tag});
      }
      if (come[i] > 0) {
        transfers.push_back({P2p::Direction::kReceive, coming, rank, tag});
      }
    }
    from += leave[i];
    to += come[i];
  }
  pending_ = group->exchange(transfers);
  return out_;
}

Tensor RowWay::finish() {
  pending_.wait();
  in_.reset();
  return std::exchange(out_, Tensor());
}

c10::intrusive_ptr<RowWay> way_of(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<RowWay>(context->saved_data["way"].toCapsule());
}

/// First half of an exchange in the forward pass, and last half of the gradient exchange in the
/// backward pass. Autograd runs the operations recorded between the halves between them. The tensor
/// passed between the halves must not be read: in the forward pass the rows have not arrived yet;
/// in the backward pass the gradient has already been sent.
struct StartRows : torch::autograd::Function<StartRows> {
  static Tensor forward(
      AutogradContext* context, const Tensor& rows, const c10::intrusive_ptr<RowWay>& way) {
    context->saved_data["way"] = c10::IValue::make_capsule(way);
    return way->start(rows, /*is_back=*/false);
  }
  static tensor_list backward(AutogradContext* context, tensor_list /*sent*/) {
    return {way_of(context)->finish(), Tensor()};
  }
};

struct FinishRows : torch::autograd::Function<FinishRows> {
  static Tensor forward(
      AutogradContext* context, const Tensor& coming, const c10::intrusive_ptr<RowWay>& way) {
    context->saved_data["way"] = c10::IValue::make_capsule(way);
    (void)way->finish();
    return coming.view_as(coming);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    (void)way_of(context)->start(gradients[0], /*is_back=*/true);
    return {gradients[0], Tensor()};
  }
};

c10::intrusive_ptr<RowWay> make_way(
    const std::vector<int64_t>& sent,
    const std::vector<int64_t>& received,
    comm::Communicator& group,
    int tag) {
  auto way = c10::make_intrusive<RowWay>();
  way->sent = sent;
  way->received = received;
  way->group = &group;
  way->tag = tag;
  return way;
}

}  // namespace

RowRoute::RowRoute(const Tensor& counts, comm::Communicator& group, int number)
    : group_(&group),
      number_(number),
      own_counts_(static_cast<size_t>(counts.size(1)), 0) {
  const auto count = counts.accessor<int64_t, 2>();
  const int64_t ranks = group.size();
  const int64_t experts = counts.size(1);
  const int64_t* leaving = count[group.rank()].data();
  const mesh::Range own = mesh::split_evenly(experts, ranks, group.rank());
  // Positions in order of arrival.
  std::vector<std::vector<int64_t>> places(static_cast<size_t>(experts));
  int64_t place = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const mesh::Range theirs = mesh::split_evenly(experts, ranks, rank);
    sent_.push_back(std::accumulate(leaving + theirs.begin, leaving + theirs.end, int64_t{0}));
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

std::function<Tensor()> RowRoute::start(const Tensor& rows) const {
  const auto way = make_way(sent_, received_, *group_, number_);
  return [way,
          coming = StartRows::apply(rows, way),
          order = ops::to_device(by_expert_, rows.device())] {
    return FinishRows::apply(coming, way).index_select(0, order);
  };
}

std::function<Tensor()> RowRoute::start_back(const Tensor& rows) const {
  const auto way = make_way(received_, sent_, *group_, number_);
  const Tensor sorted = rows.index_select(0, ops::to_device(by_rank_, rows.device()));
  return [way, coming = StartRows::apply(sorted, way)] { return FinishRows::apply(coming, way); };
}

std::vector<RowRoute> make_routes(
    const std::vector<std::vector<int64_t>>& counts, comm::Communicator& group) {
  std::vector<Tensor> of_parts;
  for (const std::vector<int64_t>& part : counts) {
    of_parts.push_back(at::tensor(part, at::kLong));
  }
  const Tensor own = at::stack(of_parts);  // [parts, E]
  Tensor all = at::empty({group.size(), own.size(0), own.size(1)}, at::kLong);
  group.all_gather(all, own).wait();
  std::vector<RowRoute> routes;
  for (int64_t part = 0; part < own.size(0); ++part) {
    routes.emplace_back(all.select(1, part), group, static_cast<int>(part));
  }
  return routes;
}

}  // namespace lockstep::parallel
