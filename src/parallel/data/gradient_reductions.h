// The gradients' way from autograd into the sum over the ranks, while the backward pass still runs
// (Li et al., "PyTorch Distributed", VLDB 2020, 3.2; Rajbhandari et al., "ZeRO", 2020, 5.2).
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "ops/gradient_sink.h"
#include "parallel/data/flat_unit.h"
#include "parallel/data/grad_norm_accumulator.h"

namespace lockstep::parallel {

struct ReductionOptions {
  int zero_stage = 0;
  bool find_unused_parameters =
      false;  // else a parameter without a gradient is an error that names it
  /// On the wire; none: that of the buffers.
  std::optional<at::ScalarType> reduce_type{};
  /// Stages 2 and 3: reductions under way before the backward pass waits for the oldest; each holds
  /// a unit's gradients.
  size_t in_flight = 1;
  /// Ranks that hold the same shards, over which these are summed further; none: there are none.
  comm::Communicator* replicas = nullptr;
  std::function<void()> written{};  // told of each gradient
  bool counts_squares = false;      // of the sums, for squares()
  ShareOfParameter share{};
};

/// Stages 0 and 1 add a step's micro-batches up in whole gradients and communicate in the last one.
/// Stages 2 and 3 reduce each micro-batch into the shard. Reductions start in one static order, so
/// that ranks whose gradients come in another order never deadlock. Who makes the first gradient of
/// a parameter in a micro-batch is lent its part of the buffer; further ones are added.
class GradientReductions {
 public:
  /// Puts hooks on the trained parameters, and takes them away in the end.
  GradientReductions(
      comm::Communicator& group, std::vector<FlatUnit>& flats, const ReductionOptions& options);
  ~GradientReductions();
  GradientReductions(const GradientReductions&) = delete;
  GradientReductions& operator=(const GradientReductions&) = delete;

  /// Of so many micro-batches; 0: that is not known.
  void begin_step(size_t micro_batches);
  void begin_micro_batch(bool last);
  /// Error (config) naming the parameters that got no gradient, unless those are looked for.
  void end_micro_batch();
  /// Blocks until every sum is in its shard_gradient, those over FlatUnit::summed_over too: the
  /// ranks there must call as well.
  void finish();
  /// After finish(): the squares of the sums, float64 [1] on the gradients' device, each element of
  /// each sum on one of the ranks that hold it. Those of sums that are added to are counted now.
  Tensor squares();
  /// Bytes of gradients on their way, and of what is received into.
  int64_t bytes_in_flight() const;
  /// Reductions that started while the backward passes of the step still ran.
  int overlapped() const { return overlapped_; }

 private:
  struct Entry {
    bool written = false;  // its part of the buffer holds something
    bool seen = false;     // in this micro-batch
    bool lent = false;     // one of this micro-batch's gradients is made there
  };
  struct Unit {
    FlatUnit* flat;
    std::vector<Entry> entries;
    size_t seen = 0;       // of the entries, in this micro-batch
    bool has_sum = false;  // shard_gradient holds micro-batches of this step (stages 2 and 3)
    GradNormAccumulator squares;
  };
  struct Range {
    int64_t begin, end;
  };
  struct InFlight {
    Unit* unit;
    Tensor wire;      // what is sent
    Tensor incoming;  // where the sum arrives
    bool adds;        // to what shard_gradient holds
    bool is_last;     // of the step: the sum is whole then
    bool is_counted;  // as it is made
    comm::Pending pending;
  };
  /// The second leg, over the replicas.
  struct Replication {
    Unit* unit;
    Tensor wire;
    comm::Pending pending;
    bool is_counted;
  };

  class Taker;

  ops::GradientPlace lend(size_t unit, size_t entry, ops::Makes makes);
  void gradient_written(size_t unit, size_t entry);
  void open_buffer(Unit& unit);
  void clear_unwritten(Unit& unit);
  void count_unseen(Unit& unit);
  void start_ready();
  void start(Unit& unit);
  void complete_oldest();
  void start_replication(Unit& unit);
  /// Whether the squares of its sum are to be counted in this micro-batch.
  bool counts(const Unit& unit) const;
  /// Whether the sum is not the last: further ranks' gradients are added.
  static bool is_added_to(const Unit& unit);
  /// Whether its squares are counted all together, when the sum is whole: on a device, where no
  /// cache holds what was just written, that is one kernel instead of one a parameter.
  static bool is_counted_at_end(const Unit& unit);
  /// Whether what autograd writes is the sum: there is one rank.
  bool is_sum_when_written(const Unit& unit) const;
  at::ScalarType wire_type(const Unit& unit) const;
  /// The part of a unit's sum whose squares this rank counts.
  Range own_part(const Unit& unit) const;
  static comm::ResultReader counter(Unit& unit);
  /// What came, into the sum; counted where this rank is to.
  void take(Unit& unit, const Tensor& from, Written how, bool is_counted);
  bool keeps_whole_gradients() const { return options_.zero_stage < 2; }
  bool reduces_now() const { return last_micro_batch_ || !keeps_whole_gradients(); }

  comm::Communicator& group_;
  ReductionOptions options_;
  std::vector<Unit> units_;
  std::deque<InFlight> in_flight_;
  std::vector<Replication> replications_;
  size_t next_ = 0;           // units before this one are on their way
  size_t micro_batches_ = 0;  // of the step; 0: not known
  bool last_micro_batch_ = false;
  bool in_backward_ = false;
  int overlapped_ = 0;
};

}  // namespace lockstep::parallel
