// Gathers the parameters of sharded units ahead of use and, in stage 3, frees them afterwards.
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

/// Prefetch distance of gathers.
struct Prefetch {
  int64_t units = 1;
  /// Instead of `units`: prefetch until this number of elements is gathered ahead.
  std::optional<int64_t> elements{};
};

/// Every rank of the group must enter the same units in the same order: forward 0, 1, 2, ...,
/// backward from the last. Each rank checks the order before anything is sent, so that a rank that
/// deviates ends with an Error naming the unit, and no other rank waits for it in a collective.
class ParameterGathers {
 public:
  /// `units` (their names are used in messages) must be those of `flats`.
  ParameterGathers(
      comm::Communicator& group,
      FlatUnits& flats,
      const std::vector<ParameterUnit>& units,
      const Prefetch& prefetch,
      ShardFile* file = nullptr);

  /// Blocks until the unit's parameters are available and starts gathering those of the following
  /// units.
  void enter(size_t unit, Pass pass);
  /// Frees what only this unit needed, if it is sharded. Parameters that a later unit of the
  /// forward pass reads stay until then; memory peaks at that unit anyway.
  void leave(size_t unit, Pass pass);
  /// Must be called after shards changed: gathered values are dropped and gathered again when a
  /// unit is entered.
  void shards_changed();
  /// Waits for gathers in flight. Shards may be modified afterwards.
  void settle();
  /// Makes every parameter whole.
  void gather_all();
  /// Frees everything that may be freed, at the end of a backward pass that did not reach the first
  /// units.
  void leave_all();

  /// Bytes of parameters that this rank stores (on their device), and of those gathered
  /// temporarily.
  int64_t kept_bytes() const;
  int64_t gathered_bytes() const;
  /// Sum of both, and its peak.
  int64_t live_bytes() const { return kept_bytes() + gathered_bytes(); }
  int64_t peak_bytes() const { return peak_bytes_; }

 private:
  enum class State { kAbsent, kReading, kGathering, kPresent };
  struct Gather {
    State state = State::kPresent;
    comm::Pending pending;
    std::optional<c10::Event> copied;  // host-to-device copy that overlaps with computation
  };

  void check_order(size_t unit, Pass pass);
  void start_ahead(size_t unit, Pass pass);
  bool is_read_after(size_t flat, size_t unit) const;
  bool is_in_file(size_t flat) const;
  Tensor own_part(size_t flat) const;  // this rank's slice of the whole
  void start_read(size_t flat);
  void start(size_t flat);
  /// Gathers, after copying the shard to the device if needed.
  void gather(size_t flat);
  void wait(size_t flat);
  void drop(size_t flat);

  comm::Communicator& group_;
  FlatUnits& flats_;
  std::vector<Gather> gathers_;  // one per flat unit
  std::vector<std::string> names_;
  std::vector<bool> backward_reads_;
  Prefetch prefetch_;
  ShardFile* file_;                                 // file of the shards, if any
  int64_t last_forward_ = -1, last_backward_ = -1;  // units entered last
  int64_t peak_bytes_ = 0;
  std::unique_ptr<ops::DeviceCopies> copies_;  // null until the first copy
};

}  // namespace lockstep::parallel
