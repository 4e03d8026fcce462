// Data parallelism with ZeRO stages 0 to 3 (Rajbhandari et al., 2020) as one engine over units:
// each rank processes its slice of the batch, gradients are summed while the backward pass runs,
// and the stage decides which values, gradients and optimizer state a rank stores (flat_unit.h).
// Every stage runs the same code.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "parallel/data/flat_unit.h"
#include "parallel/data/gradient_reductions.h"
#include "parallel/data/parameter_gathers.h"
#include "parallel/offload/shard_file.h"

namespace lockstep::parallel {

struct DataParallelOptions {
  int zero_stage = 0;
  double bucket_megabytes =
      25;  // stages 0 to 2: units share buffers of up to this (ddp_bucket_cap_mb)
  int64_t prefetch_units = 1;                  // units gathered ahead of use
  std::optional<int64_t> prefetch_elements{};  // or by number of elements instead of units
  int64_t persistence_threshold = 0;           // stage 3: parameters with fewer elements stay whole
  bool find_unused_parameters = false;         // false: a parameter without a gradient is an error
  /// Type of the gradient accumulation buffers; nullopt: the parameters' type.
  std::optional<at::ScalarType> gradient_type{};
  /// Type of gradients in messages; nullopt: that of the buffers.
  std::optional<at::ScalarType> reduce_type{};
  bool offload_parameters = false;           // stage 3: shards are in host memory
  std::filesystem::path parameter_folder{};  // stage 3: shards are in a file in this folder
  int64_t alignment = 1;  // elements; parameters and shards start at multiples of it
  /// Initial values; each rank reads only its own shards. Empty: the parameters hold values, and
  /// rank 0's are used.
  ParameterSource source{};
  /// Ranks that hold replicas of this rank's shards (hybrid sharding: shards within a node,
  /// replicas across nodes). Null: no replicas.
  comm::Communicator* replicas = nullptr;
  /// Update rule per parameter; empty: according to its description.
  std::function<optim::UpdateRule(const std::string& name)> rule_of{};
  /// Counts squares of gradients for squared_gradients().
  bool counts_squares = false;
  ShareOfParameter share_of_squares{};
};

/// Data parallelism engine. Every rank runs a step as follows:
///   begin_step();
///   for each micro-batch { begin_micro_batch(last); loss.backward(); end_micro_batch(); }
///   finish();  // each flats()[i].shard_gradient is now the sum over ranks and micro-batches
///   ... update each flats()[i].shard ...
///   parameters_changed();
/// The forward pass calls run_unit() for each unit.
class DataParallel {
 public:
  /// Takes over the storage of the parameters. `group` are the ranks that share a state. Every rank
  /// must call with equal units; the communicators must outlive it.
  DataParallel(
      comm::Communicator& group,
      const std::vector<ParameterUnit>& units,
      const DataParallelOptions& options);
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Returns body(inputs), with the unit's parameters available during the call and in the backward
  /// pass. In a forward pass every unit must run once, in order. With stages 1 to 3 every rank must
  /// call.
  std::vector<Tensor> run_unit(
      size_t unit,
      const std::vector<Tensor>& inputs,
      const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body);
  /// The same for a unit with one input and one output; x may be undefined.
  Tensor run_unit(size_t unit, const Tensor& x, const std::function<Tensor(const Tensor&)>& body);

  /// Starts a step of this number of micro-batches; 0: unknown.
  void begin_step(size_t micro_batches = 0) { reductions_.begin_step(micro_batches); }
  void begin_micro_batch(bool last) { reductions_.begin_micro_batch(last); }
  /// Throws Error (config) naming parameters without a gradient, unless unused parameters are
  /// allowed.
  void end_micro_batch();
  void finish();

  /// After finish(), if counted: returns the sum of squares of the summed gradients, float64 [1] on
  /// their device. Each element is counted on one rank of `group` and its replicas. No
  /// communication.
  Tensor squared_gradients() { return reductions_.squares(); }

  /// Before shards are read or written outside a step (a checkpoint): waits for gathers that still
  /// send them.
  void settle() { gathers_.settle(); }
  /// Must be called after shards were modified: earlier graphs become invalid, and the other ranks'
  /// shards are gathered again before use.
  void parameters_changed();
  /// Gathers every parameter, for callers that read the model directly; stage 3 frees them again as
  /// units are used.
  void gather_all() { gathers_.gather_all(); }
  /// Returns the first parameter with a NaN or Inf in its summed gradient, within this rank's
  /// shards.
  std::optional<std::string> first_non_finite() const;

  /// Sets a callback for moments of high memory use: the end of a unit's forward pass, and after a
  /// gradient was written. There is one at a time.
  void set_at_work(std::function<void(Pass)> at_work) { at_work_ = std::move(at_work); }

  std::vector<FlatUnit>& flats() { return flats_.flats; }
  const std::vector<FlatUnit>& flats() const { return flats_.flats; }
  const ParameterGathers& gathers() const { return gathers_; }
  /// File that stores the shards; null: none.
  ShardFile* shard_file() { return file_.get(); }
  /// Bytes of gradients: whole gradients in flight, and the shards' sums.
  int64_t gradient_bytes() const;
  /// Bytes of gradients in flight and of receive buffers.
  int64_t bytes_in_flight() const { return reductions_.bytes_in_flight(); }
  /// Reductions that started while the backward passes of the last step still ran.
  int overlapped_reductions() const { return reductions_.overlapped(); }

 private:
  void worked(Pass pass) const;
  ReductionOptions reduction_options() const;

  DataParallelOptions options_;
  std::vector<bool> backward_reads_;
  std::unique_ptr<ShardFile> file_;
  FlatUnits flats_;
  ParameterGathers gathers_;
  std::function<void(Pass)> at_work_;
  GradientReductions reductions_;
};

}  // namespace lockstep::parallel
