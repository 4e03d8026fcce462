// Gathers parameters of sharded units ahead of use and, in stage 3, frees them after use.
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

/// Distance between a gather and the use of the parameters.
struct Prefetch {
  int64_t units = 1;
  /// Used instead of `units`: prefetch until this number of elements is gathered ahead.
  std::optional<int64_t> elements{};
};

/// All ranks of the group must enter the same units in the same order: forward 0, 1, 2, ...;
/// backward from the last unit. Each rank checks the order before it communicates. A rank that
/// deviates throws an Error that names the unit instead of entering a mismatched collective.
class ParameterGathers {
 public:
  /// `units` must be the units from which `flats` was built. Their names are used in messages.
  ParameterGathers(
      comm::Communicator& group,
      FlatUnits& flats,
      const std::vector<ParameterUnit>& units,
      const Prefetch& prefetch,
      ShardFile* file = nullptr);

  /// Blocks until the unit's parameters are available, and starts to gather those of the next
  /// units.
  void enter(size_t unit, Pass pass);
  /// Frees parameters that only this unit needed, if it is sharded. Parameters that a later unit of
  /// the forward pass reads stay gathered; memory use peaks at that unit in any case.
  void leave(size_t unit, Pass pass);
  /// Must be called after shards were modified. Gathered values are discarded and gathered again
  /// when a unit is entered.
  void shards_changed();
  /// Waits for gathers in flight, after which shards may be modified.
  void settle();
  /// Gathers all parameters.
  void gather_all();
  /// Frees all sharded parameters after a backward pass that did not reach the first units.
  void leave_all();

  /// Bytes of the parameters that this rank stores on their device, and of temporarily gathered
  /// parameters.
  int64_t kept_bytes() const;
  int64_t gathered_bytes() const;
  /// Sum of stored and gathered bytes, and its peak.
  int64_t live_bytes() const { return kept_bytes() + gathered_bytes(); }
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  enum class State { kAbsent, kReading, kGathering, kPresent };
  struct Gather {
    State state = State::kPresent;
    comm::Pending pending;
    std::optional<c10::Event> copied;  // end of the host-to-device copy, which overlaps with
                                       // computation
  };

  void check_order(size_t unit, Pass pass);
  void start_ahead(size_t unit, Pass pass);
  bool is_read_after(size_t flat, size_t unit) const;
  bool is_in_file(size_t flat) const;
  Tensor own_part(size_t flat) const;  // this rank's slice of the whole buffer
  void start_read(size_t flat);
  void start(size_t flat);
  /// Gathers the flat unit; first copies the shard to the device if needed.
  void gather(size_t flat);
  void wait(size_t flat);
  void drop(size_t flat);

  comm::Communicator& group_;
  FlatUnits& flats_;
  std::vector<Gather> gathers_;  // one per flat unit
  std::vector<std::string> names_;
  std::vector<bool> backward_reads_;
  Prefetch prefetch_;
  ShardFile* file_;                                 // file that stores the shards; null: none
  int64_t last_forward_ = -1, last_backward_ = -1;  // units that were entered last
  int64_t peak_bytes_ = 0;
  std::unique_ptr<ops::DeviceCopies> copies_;  // null until the first copy
};

}  // namespace lockstep::parallel
