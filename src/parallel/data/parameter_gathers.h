// Gathers the parameters of sharded units ahead of use, and in stage 3 frees them after it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "ops/device_copies.h"
#include "parallel/data/flat_unit.h"

namespace lockstep::parallel {

enum class Pass { kForward, kBackward };

/// How far ahead of use units are gathered.
struct Prefetch {
  int64_t units = 1;
  /// In the place of `units`: until those that are gathered ahead have so many elements.
  std::optional<int64_t> elements{};
};

/// Every rank of the group must enter the same units in the same order: forward 0, 1, 2, ...,
/// backward down from the last. That order is checked on each rank by itself, before anything is
/// sent, so that a rank that deviates from the order ends with an Error that names the unit, and no
/// other waits for it in a collective that will never come.
class ParameterGathers {
 public:
  /// `units` (their names are for messages) must be those that `flats` was made of.
  ParameterGathers(
      comm::Communicator& group,
      FlatUnits& flats,
      const std::vector<ParameterUnit>& units,
      const Prefetch& prefetch,
      ShardFile* file = nullptr);

  /// Blocks until the unit's parameters are at hand, and starts to gather those of the units that
  /// come next.
  void enter(size_t unit, Pass pass);
  /// Drops what the unit alone needed, where a rank does not keep it. What a later unit of a
  /// forward pass reads again stays until then: that unit is where memory is fullest in any case.
  void leave(size_t unit, Pass pass);
  /// The shards are newer than what was gathered: that is dropped, and gathered anew when a unit is
  /// entered.
  void shards_changed();
  /// Waits for what is on its way. Shards may be written after it.
  void settle();
  /// Makes every parameter whole.
  void gather_all();
  /// Drops everything that may be dropped: the end of a backward pass that did not reach its first
  /// units.
  void leave_all();

  /// Bytes of parameters that this rank keeps (on their device), and of those that it has gathered
  /// for a time.
  int64_t kept_bytes() const;
  int64_t gathered_bytes() const;
  /// Both, and the most there ever were.
  int64_t live_bytes() const { return kept_bytes() + gathered_bytes(); }
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  enum class State { kAbsent, kReading, kGathering, kPresent };
  struct Gather {
    State state = State::kPresent;
    comm::Pending pending;
    std::optional<c10::Event> copied;  // from the host to the device, beside what it computes
  };

  void check_order(size_t unit, Pass pass);
  void start_ahead(size_t unit, Pass pass);
  bool is_read_after(size_t flat, size_t unit) const;
  bool is_in_file(size_t flat) const;
  Tensor own_part(size_t flat) const;  // of the whole
  void start_read(size_t flat);
  void start(size_t flat);
  /// Gathers what is on the device, or copies it there first.
  void gather(size_t flat);
  void wait(size_t flat);
  void drop(size_t flat);

  comm::Communicator& group_;
  FlatUnits& flats_;
  std::vector<Gather> gathers_;  // one a flat unit
  std::vector<std::string> names_;
  std::vector<bool> backward_reads_;
  Prefetch prefetch_;
  ShardFile* file_;                                 // that shards may live in
  int64_t last_forward_ = -1, last_backward_ = -1;  // units entered last
  int64_t peak_bytes_ = 0;
  std::unique_ptr<ops::DeviceCopies> copies_;  // null: nothing was copied yet
};

}  // namespace lockstep::parallel
