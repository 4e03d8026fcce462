// Gradient reduction that overlaps with the backward pass (Li et al., "PyTorch Distributed", VLDB
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
  /// Type in which gradients are sent; nullopt: the type of the buffers.
  std::optional<at::ScalarType> reduce_type{};
  /// Stages 2 and 3: maximum number of reductions in flight. If it is reached, the backward pass
  /// waits for the oldest reduction. Each reduction holds the gradients of a unit.
  size_t in_flight = 1;
  /// Ranks that hold replicas of the shards; a second reduction sums over these ranks. Null: no
  /// replicas.
  comm::Communicator* replicas = nullptr;
  std::function<void()> written{};  // called after each gradient was written
  bool counts_squares = false;      // accumulate the squares of the sums for squares()
  ShareOfParameter share{};
};

/// Stages 0 and 1 accumulate whole gradients over a step's micro-batches and communicate in the
/// last micro-batch. Stages 2 and 3 reduce every micro-batch into the shard. Reductions start in a
/// fixed order, so that ranks whose gradients become ready in different orders never deadlock. In
/// each micro-batch, the first kernel that computes a parameter's gradient writes it directly into
/// the buffer; later gradients are added.
class GradientReductions {
 public:
  /// Registers hooks on the trained parameters. The destructor removes them.
  GradientReductions(
      comm::Communicator& group, std::vector<FlatUnit>& flats, const ReductionOptions& options);
  ~GradientReductions();
  GradientReductions(const GradientReductions&) = delete;
  GradientReductions& operator=(const GradientReductions&) = delete;

  /// Starts a step with the given number of micro-batches; 0: unknown.
  void begin_step(size_t micro_batches);
  void begin_micro_batch(bool last);
  /// Throws Error (config) that names parameters without a gradient, unless unused parameters are
  /// allowed.
  void end_micro_batch();
  /// Blocks until all gradients are summed into shard_gradient, including the sums over
  /// FlatUnit::summed_over. Must also be called on the ranks of these groups.
  void finish();
  /// Returns the sum of squares of the summed gradients after finish(): float64 [1] on their
  /// device. Each element is counted on one of the ranks that hold it. Gradients that are modified
  /// after the reduction are counted in this call.
  Tensor squares();
  /// Returns the bytes of gradients in flight and of receive buffers.
  int64_t bytes_in_flight() const;
  /// Returns the number of reductions that started before the backward passes of the step ended.
  int overlapped() const { return overlapped_; }

 private:
  struct Entry {
    bool written = false;  // its slice of the buffer has been written in this step
    bool seen = false;     // has a gradient in this micro-batch
    bool lent = false;     // a kernel writes one of its gradients of this micro-batch directly into
                           // the buffer
  };
  struct Unit {
    FlatUnit* flat;
    std::vector<Entry> entries;
    size_t seen = 0;       // number of entries with a gradient in this micro-batch
    bool has_sum = false;  // stages 2 and 3: shard_gradient contains earlier micro-batches of this
                           // step
    GradNormAccumulator squares;
  };
  struct Range {
    int64_t begin, end;
  };
  struct InFlight {
    Unit* unit;
    Tensor wire;      // send buffer
    Tensor incoming;  // receive buffer
    bool adds;        // the result is added to shard_gradient instead of replacing it
    bool is_last;     // reduction of the step's last micro-batch, which completes the sum
    bool is_counted;  // squares are accumulated while the sum is computed
    comm::Pending pending;
  };
  /// Second reduction, over the ranks that hold replicas.
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
  /// Returns true if the squares of the unit's sum are accumulated in this micro-batch.
  bool counts(const Unit& unit) const;
  /// Returns true if the sum is not final because gradients of additional ranks will be added.
  static bool is_added_to(const Unit& unit);
  /// Returns true if the squares are accumulated after the sum is complete. On a device, where the
  /// sum would not stay in a cache, one kernel then replaces one kernel per parameter.
  static bool is_counted_at_end(const Unit& unit);
  /// Returns true if autograd writes the final sum directly, because there is only one rank.
  bool is_sum_when_written(const Unit& unit) const;
  at::ScalarType wire_type(const Unit& unit) const;
  /// Returns the range of a unit's sum whose squares this rank counts.
  Range own_part(const Unit& unit) const;
  static comm::ResultReader counter(Unit& unit);
  /// Copies or adds a received tensor to the sum and accumulates squares if requested.
  void take(Unit& unit, const Tensor& from, Written how, bool is_counted);
  bool keeps_whole_gradients() const { return options_.zero_stage < 2; }
  bool reduces_now() const { return last_micro_batch_ || !keeps_whole_gradients(); }

  comm::Communicator& group_;
  ReductionOptions options_;
  std::vector<Unit> units_;
  std::deque<InFlight> in_flight_;
  std::vector<Replication> replications_;
  size_t next_ = 0;           // the reductions of all units before this index have started
  size_t micro_batches_ = 0;  // number in the step; 0: unknown
  bool last_micro_batch_ = false;
  bool in_backward_ = false;
  int overlapped_ = 0;
};

}  // namespace lockstep::parallel
