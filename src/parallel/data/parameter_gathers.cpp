// Gathers parameters ahead of use and frees them afterwards.
#include "parallel/data/parameter_gathers.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "parallel/offload/shard_file.h"

namespace lockstep::parallel {

ParameterGathers::ParameterGathers(
    comm::Communicator& group,
    FlatUnits& flats,
    const std::vector<ParameterUnit>& units,
    const Prefetch& prefetch,
    ShardFile* file)
    : group_(group),
      flats_(flats),
      gathers_(flats.flats.size()),
      prefetch_(prefetch),
      file_(file) {
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
  // A pass may end early (without a head, or if no earlier unit needs a gradient) and then start
  // again.
  const bool fits = pass == Pass::kForward ? index == before + 1 || index == 0
                                           : index == before - 1 || index == last;
  if (!fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "rank {} of group {} runs the unit {} in its {} pass {}",
            group_.rank(),
            group_.name(),
            names_.at(unit),
            pass == Pass::kForward ? "forward" : "backward",
            before < 0 ? "first" : fmt::format("after {}", names_.at(static_cast<size_t>(before)))),
        "every rank must run each unit once per pass, in the order in which the units were "
        "registered");
  }
  before = index;
}

void ParameterGathers::enter(size_t unit, Pass pass) {
  check_order(unit, pass);
  for (const size_t flat : flats_.of_unit[unit]) {
    start(flat);
  }
  for (size_t flat = gathers_.size(); flat-- > 0;) {  // in order of use
    if (flats_.flats[flat].persistent) {
      start(flat);  // its memory is already allocated, so there is no reason to delay the gather
    }
  }
  start_ahead(unit, pass);
  for (const size_t flat : flats_.of_unit[unit]) {
    wait(flat);
  }
  peak_bytes_ = std::max(peak_bytes_, live_bytes());
}

void ParameterGathers::start_ahead(size_t unit, Pass pass) {
  const auto step = pass == Pass::kForward ? int64_t{1} : int64_t{-1};
  const auto units = static_cast<int64_t>(names_.size());
  int64_t weights = 0, ahead = 0;
  const auto wants_more = [&] {
    return prefetch_.elements ? weights < *prefetch_.elements : ahead < prefetch_.units;
  };
  const auto is_needed = [&](int64_t next) {
    return next >= 0 && next < units &&
           (pass == Pass::kForward || backward_reads_[static_cast<size_t>(next)]);
  };
  int64_t next = static_cast<int64_t>(unit) + step;
  for (; next >= 0 && next < units && wants_more(); next += step, ++ahead) {
    if (is_needed(next)) {
      for (const size_t flat : flats_.of_unit[static_cast<size_t>(next)]) {
        start(flat);
        weights += flats_.flats[flat].weights;
      }
    }
  }
  if (is_needed(next)) {  // shards in files are read from the file one unit before they are
                          // gathered
    for (const size_t flat : flats_.of_unit[static_cast<size_t>(next)]) {
      start_read(flat);
    }
  }
}

void ParameterGathers::leave(size_t unit, Pass pass) {
  const bool has_room = prefetch_.elements.value_or(prefetch_.units) > 0;
  for (const size_t flat : flats_.of_unit[unit]) {
    const bool stays = has_room && pass == Pass::kForward && is_read_after(flat, unit);
    if (!flats_.flats[flat].persistent && !stays) {
      drop(flat);
    }
  }
}

bool ParameterGathers::is_read_after(size_t flat, size_t unit) const {
  const auto& units = flats_.of_unit;
  return std::any_of(
      units.begin() + static_cast<std::ptrdiff_t>(unit) + 1, units.end(), [&](const auto& flats) {
        return std::find(flats.begin(), flats.end(), flat) != flats.end();
      });
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
  for (size_t flat = gathers_.size(); flat-- > 0;) {  // in order of use
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

bool ParameterGathers::is_in_file(size_t flat) const {
  return file_ != nullptr && file_->holds(flats_.flats[flat].shard);
}

Tensor ParameterGathers::own_part(size_t flat) const {
  const FlatUnit& unit = flats_.flats[flat];
  return unit.full.narrow(0, unit.shard_begin, unit.shard.numel());
}

void ParameterGathers::start_read(size_t flat) {
  Gather& gather = gathers_[flat];
  if (gather.state == State::kAbsent && is_in_file(flat)) {
    set_allocated(flats_.flats[flat].full, true);
    file_->start_read(flats_.flats[flat].shard, own_part(flat));
    gather.state = State::kReading;
  }
}

void ParameterGathers::start(size_t index) {
  Gather& gathered = gathers_[index];
  const FlatUnit& flat = flats_.flats[index];
  if (gathered.state == State::kGathering || gathered.state == State::kPresent) {
    return;
  }
  start_read(index);
  set_allocated(flat.full, true);
  if (flat.full.is_cuda() && !flat.shard.is_cuda()) {
    if (copies_ == nullptr) {
      copies_ = std::make_unique<ops::DeviceCopies>(flat.full.device());
    }
    copies_->follow_compute();  // earlier computation may still read this memory
    gathered.copied = copies_->run([&] { gather(index); });
  } else {
    gather(index);
  }
  gathered.pending.set_name(flat.name);
  gathered.state = State::kGathering;
}

void ParameterGathers::gather(size_t index) {
  const FlatUnit& flat = flats_.flats[index];
  const bool is_here = !is_in_file(index) && flat.shard.device() == flat.full.device();
  if (is_in_file(index)) {
    file_->finish_read(flat.shard);
  } else if (!is_here) {
    own_part(index).copy_(flat.shard, /*non_blocking=*/true);
  }
  gathers_[index].pending = group_.all_gather(flat.full, is_here ? flat.shard : own_part(index));
}

void ParameterGathers::wait(size_t flat) {
  Gather& gather = gathers_[flat];
  if (gather.state == State::kGathering) {
    gather.pending.wait();
    if (gather.copied) {
      copies_->lead_compute(*gather.copied);
      gather.copied.reset();
    }
    gather.state = State::kPresent;
  } else if (gather.state == State::kReading) {  // not used, because the pass ended early
    file_->finish_read(flats_.flats[flat].shard);
    set_allocated(flats_.flats[flat].full, false);
    gather.state = State::kAbsent;
  }
}

void ParameterGathers::drop(size_t index) {
  wait(index);
  gathers_[index].state = State::kAbsent;
  if (!flats_.flats[index].persistent) {
    set_allocated(flats_.flats[index].full, false);
  }
}

int64_t ParameterGathers::kept_bytes() const {
  int64_t bytes = 0;
  for (const FlatUnit& flat : flats_.flats) {
    const bool is_here = flat.shard.device() == flat.full.device();
    bytes += flat.persistent ? static_cast<int64_t>(flat.full.storage().nbytes())
             : is_here       ? static_cast<int64_t>(flat.shard.storage().nbytes())
                             : 0;
  }
  return bytes;
}

int64_t ParameterGathers::gathered_bytes() const {
  int64_t bytes = 0;
  for (const FlatUnit& flat : flats_.flats) {
    bytes += flat.persistent ? 0 : static_cast<int64_t>(flat.full.storage().nbytes());
  }
  return bytes;
}

}  // namespace lockstep::parallel
