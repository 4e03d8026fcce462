// Gradient reduction overlapped with the backward pass (Li et al., "PyTorch Distributed", VLDB
// 2020, 3.2; Rajbhandari et al., "ZeRO", 2020, 5.2).
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
  bool find_unused_parameters = false;  // false: a parameter without a gradient is an error
  /// Type of gradients in messages; nullopt: that of the buffers.
  std::optional<at::ScalarType> reduce_type{};
  /// Stages 2 and 3: maximum number of reductions in flight before the backward pass waits for the
  /// oldest; each holds a unit's gradients.
  size_t in_flight = 1;
  /// Ranks with replicas of the shards, over which the sums are reduced again; null: none.
  comm::Communicator* replicas = nullptr;
  std::function<void()> written{};  // called for each gradient
  bool counts_squares = false;      // counts the squares of the sums for squares()
  ShareOfParameter share{};
};

/// Stages 0 and 1 accumulate a step's micro-batches in whole gradients and communicate in the last
/// one. Stages 2 and 3 reduce each micro-batch into the shard. Reductions start in one static
/// order, so that ranks whose gradients become ready in different orders never deadlock. The first
/// kernel that computes a gradient of a parameter in a micro-batch writes directly into its slice
/// of the buffer; later ones are added.
class GradientReductions {
 public:
  /// Registers hooks on the trained parameters and removes them on destruction.
  GradientReductions(
      comm::Communicator& group, std::vector<FlatUnit>& flats, const ReductionOptions& options);
  ~GradientReductions();
  GradientReductions(const GradientReductions&) = delete;
  GradientReductions& operator=(const GradientReductions&) = delete;

  /// Starts a step of this number of micro-batches; 0: unknown.
  void begin_step(size_t micro_batches);
  void begin_micro_batch(bool last);
  /// Throws Error (config) naming parameters without a gradient, unless unused parameters are
  /// allowed.
  void end_micro_batch();
  /// Blocks until every sum is in its shard_gradient, including those over FlatUnit::summed_over,
  /// whose ranks must call too.
  void finish();
  /// After finish(): the squares of the sums, float64 [1] on the gradients' device, counting each
  /// element on one of its holders. Sums that are modified later are counted now.
  Tensor squares();
  /// Bytes of gradients in flight and of receive buffers.
  int64_t bytes_in_flight() const;
  /// Reductions that started while the backward passes of the step still ran.
  int overlapped() const { return overlapped_; }

 private:
  struct Entry {
    bool written = false;  // its slice of the buffer has been written
    bool seen = false;     // in this micro-batch
    bool lent = false;     // one of its gradients in this micro-batch is written there
  };
  struct Unit {
    FlatUnit* flat;
    std::vector<Entry> entries;
    size_t seen = 0;       // entries with a gradient in this micro-batch
    bool has_sum = false;  // shard_gradient holds micro-batches of this step (stages 2 and 3)
    GradNormAccumulator squares;
  };
  struct Range {
    int64_t begin, end;
  };
  struct InFlight {
    Unit* unit;
    Tensor wire;      // the message
    Tensor incoming;  // receive buffer
    bool adds;        // adds to shard_gradient instead of replacing it
    bool is_last;     // in the last micro-batch of the step, which completes the sum
    bool is_counted;  // counts squares while the sum is computed
    comm::Pending pending;
  };
  /// Second reduction, over the replicas.
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
  /// True if the squares of its sum are counted in this micro-batch.
  bool counts(const Unit& unit) const;
  /// True if the sum is not final: gradients of further ranks are added.
  static bool is_added_to(const Unit& unit);
  /// True if its squares are counted when the sum is complete. On a device, where nothing stays in
  /// a cache, a single kernel replaces one per parameter.
  static bool is_counted_at_end(const Unit& unit);
  /// True if autograd writes the sum directly, because there is one rank.
  bool is_sum_when_written(const Unit& unit) const;
  at::ScalarType wire_type(const Unit& unit) const;
  /// The range of a unit's sum whose squares this rank counts.
  Range own_part(const Unit& unit) const;
  static comm::ResultReader counter(Unit& unit);
  /// Moves a received tensor into the sum and counts it if requested.
  void take(Unit& unit, const Tensor& from, Written how, bool is_counted);
  bool keeps_whole_gradients() const { return options_.zero_stage < 2; }
  bool reduces_now() const { return last_micro_batch_ || !keeps_whole_gradients(); }

  comm::Communicator& group_;
  ReductionOptions options_;
  std::vector<Unit> units_;
  std::deque<InFlight> in_flight_;
  std::vector<Replication> replications_;
  size_t next_ = 0;           // reductions of units before this one have started
  size_t micro_batches_ = 0;  // in the step; 0: unknown
  bool last_micro_batch_ = false;
  bool in_backward_ = false;
  int overlapped_ = 0;
};

}  // namespace lockstep::parallel
