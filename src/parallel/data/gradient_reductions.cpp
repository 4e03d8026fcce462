// Reduces gradients while the backward pass runs.
#include "parallel/data/gradient_reductions.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include "base/error.h"
#include "base/format.h"
#include "ops/cpu/host_loops.h"

namespace lockstep::parallel {

/// Gradient hook of one parameter.
class GradientReductions::Taker final : public ops::GradientSink {
 public:
  Taker(GradientReductions& reductions, size_t unit, size_t entry)
      : reductions_(reductions),
        unit_(unit),
        entry_(entry) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override {
    reductions_.gradient_written(unit_, entry_);
  }
  ops::GradientPlace lend(ops::Makes makes) override {
    return reductions_.lend(unit_, entry_, makes);
  }

 private:
  GradientReductions& reductions_;
  size_t unit_, entry_;
};

GradientReductions::GradientReductions(
    comm::Communicator& group, std::vector<FlatUnit>& flats, const ReductionOptions& options)
    : group_(group),
      options_(options) {
  for (FlatUnit& flat : flats) {
    if (flat.trainable) {
      units_.push_back(
          {&flat,
           std::vector<Entry>(flat.entries.size()),
           0,
           false,
           GradNormAccumulator(flat, options.share)});
    }
  }
  for (size_t u = 0; u < units_.size(); ++u) {
    for (size_t e = 0; e < units_[u].entries.size(); ++e) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          units_[u].flat->entries[e].parameter, std::make_unique<Taker>(*this, u, e));
    }
  }
}

GradientReductions::~GradientReductions() {
  for (const Unit& unit : units_) {
    for (const FlatUnit::Entry& entry : unit.flat->entries) {
      torch::autograd::impl::set_post_acc_grad_hooks(entry.parameter, nullptr);
    }
  }
}

void GradientReductions::begin_step(size_t micro_batches) {
  micro_batches_ = micro_batches;
  overlapped_ = 0;
  for (Unit& unit : units_) {
    unit.has_sum = false;
    unit.squares.clear();
    for (Entry& entry : unit.entries) {
      entry.written = entry.lent = false;
    }
  }
}

void GradientReductions::begin_micro_batch(bool last) {
  last_micro_batch_ = last;
  in_backward_ = true;
  next_ = 0;
  for (Unit& unit : units_) {
    unit.seen = 0;
    for (Entry& entry : unit.entries) {
      entry.seen = false;
      entry.written = entry.written && keeps_whole_gradients();
    }
  }
}

void GradientReductions::open_buffer(Unit& unit) {
  FlatUnit& flat = *unit.flat;
  if (!flat.gradient.defined()) {
    flat.gradient = at::empty({flat.size()}, flat.shard_gradient.options());
    flat.clear_gaps(flat.gradient);
  }
}

ops::GradientPlace GradientReductions::lend(
    size_t unit_index, size_t entry_index, ops::Makes makes) {
  Unit& unit = units_[unit_index];
  Entry& entry = unit.entries[entry_index];
  const FlatUnit::Entry& place = unit.flat->entries[entry_index];
  // Outside the micro-batch's backward pass, a gradient could mix with that of another micro-batch.
  const bool is_alone = micro_batches_ == 1 && keeps_whole_gradients() && !entry.written;
  const bool is_free = !entry.lent && !entry.seen && (in_backward_ || is_alone);
  const bool is_alike = unit.flat->shard_gradient.scalar_type() == place.parameter.scalar_type();
  // In host memory, gradients of another type are converted and counted block by block in the
  // cache.
  const bool takes = makes == ops::Makes::kWritten
                         ? is_alike && !entry.written
                         : is_alike || !ops::has_host_loops(unit.flat->shard_gradient);
  // If user hooks are registered, autograd must deliver the gradient.
  if (!is_free || !takes || !torch::autograd::impl::hooks(place.parameter).empty()) {
    return {};
  }
  open_buffer(unit);
  entry.lent = true;
  return {
      unit.flat->gradient.narrow(0, place.offset, place.count).view(place.parameter.sizes()),
      entry.written};
}

void GradientReductions::gradient_written(size_t unit_index, size_t entry_index) {
  Unit& unit = units_[unit_index];
  Entry& entry = unit.entries[entry_index];
  const FlatUnit::Entry& place = unit.flat->entries[entry_index];
  const Tensor gradient = place.parameter.grad();
  if (!gradient.defined() && !entry.lent) {
    return;  // the hook runs even if no gradient was computed
  }
  if (entry.seen || !in_backward_) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("{} received two gradients in one backward pass", place.name),
        "call backward() once per micro-batch, between begin_micro_batch and end_micro_batch");
  }
  open_buffer(unit);
  const auto count = [&](int64_t begin, int64_t end) {
    unit.squares.count(place.offset + begin, place.offset + end);
  };
  const bool is_counted = counts(unit) && is_sum_when_written(unit);
  const bool is_added = entry.written || entry.lent;
  const Tensor sum = unit.flat->gradient.narrow(0, place.offset, place.count);
  if (gradient.defined() && !gradient.is_sparse()) {
    write_and_count(
        sum,
        gradient.reshape({-1}),
        0,
        place.count,
        is_added ? Written::kAdded : Written::kReplaced,
        is_counted ? comm::ResultReader(count) : comm::ResultReader());
  } else {
    if (gradient.defined()) {  // sparse rows of an embedding table that is tied to the head
      (is_added ? sum : sum.zero_()).view(gradient.sizes()).add_(gradient);
    }
    if (is_counted) {
      count(0, place.count);
    }
  }
  place.parameter.mutable_grad().reset();
  entry.written = entry.seen = true;
  entry.lent = false;
  ++unit.seen;
  if (options_.written) {
    options_.written();
  }
  if (reduces_now()) {
    start_ready();
  }
}

void GradientReductions::start_ready() {
  while (next_ < units_.size()) {
    Unit& unit = units_[next_];
    if (in_backward_ && unit.seen < unit.entries.size()) {
      return;
    }
    start(unit);
    ++next_;
    overlapped_ += in_backward_ && next_ < units_.size() ? 1 : 0;
  }
}

void GradientReductions::start(Unit& unit) {
  FlatUnit& flat = *unit.flat;
  const Tensor wire = flat.gradient.to(wire_type(unit));
  const bool is_counted =
      counts(unit) && options_.replicas == nullptr && !is_sum_when_written(unit);
  InFlight reduction{&unit, wire, flat.shard_gradient, false, last_micro_batch_, is_counted, {}};
  const auto reader = [&] {
    const bool is_made_in_place = reduction.incoming.is_alias_of(flat.shard_gradient);
    return is_counted && is_made_in_place ? counter(unit) : comm::ResultReader();
  };
  if (flat.replicated) {
    reduction.incoming = wire;
    reduction.pending = group_.all_reduce(wire, comm::Reduce::kSum, reader());
  } else {
    while (!keeps_whole_gradients() && in_flight_.size() >= options_.in_flight) {
      complete_oldest();
    }
    reduction.adds = unit.has_sum;
    if (reduction.adds || wire.scalar_type() != flat.shard_gradient.scalar_type()) {
      reduction.incoming = at::empty({flat.shard.numel()}, wire.options());
    }
    reduction.pending =
        group_.reduce_scatter(reduction.incoming, wire, comm::Reduce::kSum, reader());
  }
  reduction.pending.set_name(flat.name);
  if (!keeps_whole_gradients()) {
    unit.has_sum = true;
    flat.gradient.reset();  // the reduction holds the buffer until it completes
  }
  in_flight_.push_back(std::move(reduction));
}

void GradientReductions::complete_oldest() {
  InFlight reduction = std::move(in_flight_.front());
  in_flight_.pop_front();
  reduction.pending.wait();
  if (!reduction.incoming.is_alias_of(reduction.unit->flat->shard_gradient)) {
    take(
        *reduction.unit,
        reduction.incoming,
        reduction.adds ? Written::kAdded : Written::kReplaced,
        reduction.is_counted);
  }
  if (options_.replicas != nullptr && reduction.is_last && !reduction.unit->flat->replicated) {
    start_replication(*reduction.unit);
  }
}

bool GradientReductions::counts(const Unit& unit) const {
  return options_.counts_squares && last_micro_batch_ && !is_counted_at_end(unit);
}

bool GradientReductions::is_added_to(const Unit& unit) {
  return unit.flat->alone || unit.flat->summed_over != nullptr;
}

bool GradientReductions::is_counted_at_end(const Unit& unit) {
  return is_added_to(unit) || !ops::has_host_loops(unit.flat->shard_gradient);
}

at::ScalarType GradientReductions::wire_type(const Unit& unit) const {
  return options_.reduce_type.value_or(unit.flat->shard_gradient.scalar_type());
}

bool GradientReductions::is_sum_when_written(const Unit& unit) const {
  return group_.size() == 1 && options_.replicas == nullptr && keeps_whole_gradients() &&
         wire_type(unit) == unit.flat->shard_gradient.scalar_type();
}

GradientReductions::Range GradientReductions::own_part(const Unit& unit) const {
  const int64_t n = unit.flat->shard_gradient.numel();
  const comm::Communicator* holders = unit.flat->replicated ? &group_ : options_.replicas;
  return holders == nullptr ? Range{0, n}
                            : Range{
                                  n * holders->rank() / holders->size(),
                                  n * (holders->rank() + 1) / holders->size()};
}

comm::ResultReader GradientReductions::counter(Unit& unit) {
  return [&squares = unit.squares](int64_t begin, int64_t end) { squares.count(begin, end); };
}

void GradientReductions::take(Unit& unit, const Tensor& from, Written how, bool is_counted) {
  const Tensor& to = unit.flat->shard_gradient;
  const Range own = is_counted ? own_part(unit) : Range{0, 0};
  write_and_count(to, from, 0, own.begin, how, nullptr);
  write_and_count(to, from, own.begin, own.end, how, counter(unit));
  write_and_count(to, from, own.end, to.numel(), how, nullptr);
}

Tensor GradientReductions::squares() {
  Tensor sum;
  for (Unit& unit : units_) {
    if (!sum.defined()) {
      sum = at::zeros({1}, unit.flat->shard_gradient.options().dtype(at::kDouble));
    }
    if (is_counted_at_end(unit)) {
      const Range own = own_part(unit);
      unit.squares.clear();
      unit.squares.count(own.begin, own.end);
    }
    unit.squares.add_to(sum);
  }
  return sum.defined() ? sum : at::zeros({1}, at::kDouble);
}

void GradientReductions::start_replication(Unit& unit) {
  const Tensor& sum = unit.flat->shard_gradient;
  Replication replication{&unit, sum.to(wire_type(unit)), comm::Pending(), counts(unit)};
  const bool is_made_in_place = replication.wire.is_alias_of(sum);
  replication.pending = options_.replicas->all_reduce(
      replication.wire,
      comm::Reduce::kSum,
      replication.is_counted && is_made_in_place ? counter(unit) : comm::ResultReader());
  replication.pending.set_name(unit.flat->name);
  replications_.push_back(std::move(replication));
}

int64_t GradientReductions::bytes_in_flight() const {
  int64_t bytes = 0;
  for (const InFlight& reduction : in_flight_) {
    const FlatUnit& flat = *reduction.unit->flat;
    const auto counts = [&](const Tensor& tensor) {
      const bool is_kept = tensor.is_alias_of(flat.shard_gradient) ||
                           (flat.gradient.defined() && tensor.is_alias_of(flat.gradient));
      return is_kept ? 0 : static_cast<int64_t>(tensor.nbytes());
    };
    bytes += counts(reduction.wire);
    if (!reduction.incoming.is_alias_of(reduction.wire)) {
      bytes += counts(reduction.incoming);
    }
    if (!flat.replicated && reduction.wire.is_cpu()) {  // the slices of the other ranks, one
                                                        // message each
      bytes += static_cast<int64_t>(reduction.wire.nbytes()) / group_.size() * (group_.size() - 1);
    }
  }
  for (const Replication& replication : replications_) {
    const bool is_kept = replication.wire.is_alias_of(replication.unit->flat->shard_gradient);
    bytes += is_kept ? 0 : static_cast<int64_t>(replication.wire.nbytes());
  }
  return bytes;
}

void GradientReductions::clear_unwritten(Unit& unit) {
  for (size_t e = 0; e < unit.entries.size(); ++e) {
    if (!unit.entries[e].written) {
      open_buffer(unit);
      const FlatUnit::Entry& place = unit.flat->entries[e];
      unit.flat->gradient.narrow(0, place.offset, place.count).zero_();
    }
  }
}

void GradientReductions::count_unseen(Unit& unit) {
  for (size_t e = 0; e < unit.entries.size(); ++e) {
    if (unit.entries[e].written && !unit.entries[e].seen) {
      const FlatUnit::Entry& place = unit.flat->entries[e];
      unit.squares.count(place.offset, place.offset + place.count);
    }
  }
}

void GradientReductions::end_micro_batch() {
  in_backward_ = false;
  std::vector<std::string> unused;
  for (size_t u = 0; u < units_.size(); ++u) {
    for (size_t e = 0; e < units_[u].entries.size(); ++e) {
      if (!units_[u].entries[e].seen && !options_.find_unused_parameters) {
        unused.push_back(units_[u].flat->entries[e].name);
      }
    }
    if (reduces_now() && u >= next_) {
      clear_unwritten(units_[u]);
    }
    if (counts(units_[u]) && is_sum_when_written(units_[u])) {
      count_unseen(units_[u]);
    }
  }
  if (!unused.empty()) {
    const size_t shown = std::min<size_t>(unused.size(), 10);
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} parameters received no gradient on rank {}: {}{}",
            unused.size(),
            group_.rank(),
            fmt::join(unused.begin(), unused.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
            shown < unused.size() ? ", ..." : ""),
        "use them in the loss, freeze them, or set training.ddp_find_unused_parameters=true");
  }
  if (reduces_now()) {
    start_ready();
  }
}

void GradientReductions::finish() {
  while (!in_flight_.empty()) {
    complete_oldest();
  }
  for (Replication& replication : replications_) {
    replication.pending.wait();
    if (!replication.wire.is_alias_of(replication.unit->flat->shard_gradient)) {
      take(*replication.unit, replication.wire, Written::kReplaced, replication.is_counted);
    }
  }
  replications_.clear();
  for (Unit& unit : units_) {
    if (unit.flat->summed_over != nullptr) {
      unit.flat->summed_over->all_reduce(unit.flat->shard_gradient).wait();
    }
  }
}

}  // namespace lockstep::parallel
