#include "parallel/data/parameter_gathers.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {

ParameterGathers::ParameterGathers(
    comm::Communicator& group,
    FlatUnits& flats,
    const std::vector<ParameterUnit>& units,
    int64_t prefetch_units)
    : group_(group),
      flats_(flats),
      gathers_(flats.flats.size()),
      prefetch_units_(prefetch_units) {
  for (const ParameterUnit& unit : units) {
    names_.push_back(unit.name);
    backward_reads_.push_back(unit.backward_reads_parameters);
  }
  for (size_t flat = 0; flat < gathers_.size(); ++flat) {
    gathers_[flat].state = flats_.flats[flat].replicated ? State::kPresent : State::kAbsent;
  }
}

void ParameterGathers::check_order(size_t unit, Pass pass) {
  const auto index = static_cast<int64_t>(unit), last = static_cast<int64_t>(names_.size()) - 1;
  int64_t& before = pass == Pass::kForward ? last_forward_ : last_backward_;
  // A pass may end early (without a head, or where nothing before needs a gradient), and then
  // begins anew.
  const bool fits = pass == Pass::kForward ? index == before + 1 || index == 0
                                           : index == before - 1 || index == last;
  if (!fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "rank {} of group {} enters the unit {} in its {} pass {}",
            group_.rank(),
            group_.name(),
            names_.at(unit),
            pass == Pass::kForward ? "forward" : "backward",
            before < 0 ? "first" : fmt::format("after {}", names_.at(static_cast<size_t>(before)))),
        "every rank must run the units in the order in which they were given, each once a pass");
  }
  before = index;
}

void ParameterGathers::enter(size_t unit, Pass pass) {
  check_order(unit, pass);
  for (const size_t flat : flats_.of_unit[unit]) {
    start(flat);
  }
  for (size_t flat = gathers_.size(); flat-- > 0;) {  // in the order of use
    if (flats_.flats[flat].persistent) {
      start(flat);  // it has its memory: nothing is saved by waiting
    }
  }
  const auto step = pass == Pass::kForward ? int64_t{1} : int64_t{-1};
  for (int64_t ahead = 1; ahead <= prefetch_units_; ++ahead) {
    const int64_t next = static_cast<int64_t>(unit) + step * ahead;
    if (next < 0 || next >= static_cast<int64_t>(names_.size())) {
      break;
    }
    if (pass == Pass::kForward || backward_reads_[static_cast<size_t>(next)]) {
      for (const size_t flat : flats_.of_unit[static_cast<size_t>(next)]) {
        start(flat);
      }
    }
  }
  for (const size_t flat : flats_.of_unit[unit]) {
    wait(flat);
  }
  peak_bytes_ = std::max(peak_bytes_, live_bytes());
}

void ParameterGathers::leave(size_t unit) {
  for (const size_t flat : flats_.of_unit[unit]) {
    if (!flats_.flats[flat].persistent) {
      drop(flat);
    }
  }
}

void ParameterGathers::leave_all() {
  for (size_t flat = 0; flat < gathers_.size(); ++flat) {
    if (!flats_.flats[flat].persistent) {
      drop(flat);
    }
  }
}

void ParameterGathers::gather_all() {
  for (size_t flat = 0; flat < gathers_.size(); ++flat) {
    start(flat);
  }
  settle();
}

void ParameterGathers::shards_changed() {
  settle();
  for (size_t flat = gathers_.size(); flat-- > 0;) {  // in the order of use
    if (flats_.flats[flat].replicated) {
      continue;
    }
    drop(flat);
  }
}

void ParameterGathers::settle() {
  for (size_t flat = 0; flat < gathers_.size(); ++flat) {
    wait(flat);
  }
}

void ParameterGathers::start(size_t index) {
  Gather& gather = gathers_[index];
  if (gather.state != State::kAbsent) {
    return;
  }
  FlatUnit& flat = flats_.flats[index];
  set_allocated(flat.full, true);
  const bool is_here = flat.shard.device() == flat.full.device();
  const Tensor slice = flat.full.narrow(0, flat.shard_begin, flat.shard.numel());
  if (!is_here) {
    slice.copy_(flat.shard, /*non_blocking=*/true);
  }
  gather.pending = group_.all_gather(flat.full, is_here ? flat.shard : slice);
  gather.state = State::kGathering;
}

void ParameterGathers::wait(size_t flat) {
  Gather& gather = gathers_[flat];
  if (gather.state == State::kGathering) {
    gather.pending.wait();
    gather.state = State::kPresent;
  }
}

void ParameterGathers::drop(size_t index) {
  wait(index);
  gathers_[index].state = State::kAbsent;
  if (!flats_.flats[index].persistent) {
    set_allocated(flats_.flats[index].full, false);
  }
}

int64_t ParameterGathers::live_bytes() const {
  int64_t bytes = 0;
  for (const FlatUnit& flat : flats_.flats) {
    bytes += static_cast<int64_t>(flat.full.storage().nbytes());
    bytes += flat.persistent ? 0 : static_cast<int64_t>(flat.shard.nbytes());
  }
  return bytes;
}

}  // namespace lockstep::parallel
