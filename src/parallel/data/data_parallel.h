// Data parallelism with ZeRO stages 0 to 3 (Rajbhandari et al., 2020) as one engine over units:
// each rank works on its own part of the batch, gradients are summed while the backward pass runs,
// and a stage says what a rank keeps of values, gradients and optimizer state (flat_unit.h). Every
// stage runs the same code.
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
  int64_t prefetch_units = 1;                  // gathered ahead of use
  std::optional<int64_t> prefetch_elements{};  // or until they are so many elements
  int64_t persistence_threshold = 0;           // stage 3: parameters with fewer elements stay whole
  bool find_unused_parameters =
      false;  // else a parameter without a gradient is an error that names it
  /// Of the buffers that accumulate gradients; none: the parameters' own.
  std::optional<at::ScalarType> gradient_type{};
  /// On the wire; none: that of the buffers.
  std::optional<at::ScalarType> reduce_type{};
  bool offload_parameters = false;           // stage 3: shards live in host memory
  std::filesystem::path parameter_folder{};  // stage 3: or in a file below it
  int64_t alignment = 1;  // elements: parameters and shards begin at multiples of it
  /// Initial values; each rank asks for what it keeps alone. None: the parameters hold theirs, and
  /// get rank 0's.
  ParameterSource source{};
  /// The ranks that hold this rank's shards too, each of another group that shares a state (hybrid
  /// sharding: shards within a node, replicas across). None: there are no replicas.
  comm::Communicator* replicas = nullptr;
  /// How a parameter is updated; none: as its description has it.
  std::function<optim::UpdateRule(const std::string& name)> rule_of{};
  /// For squared_gradients().
  bool counts_squares = false;
  ShareOfParameter share_of_squares{};
};

/// A step, on every rank alike:
///   begin_step(); for each micro-batch { begin_micro_batch(last); loss.backward();
///   end_micro_batch(); } finish();           then each flats()[i].shard_gradient is the sum over
///   ranks and micro-batches
///   ... update each flats()[i].shard ...
///   parameters_changed();
/// The forward pass runs each unit by run_unit().
class DataParallel {
 public:
  /// Takes over the storage of the parameters. `group` are the ranks that share a state. Every rank
  /// must call, with equal units; the communicators must outlive it.
  DataParallel(
      comm::Communicator& group,
      const std::vector<ParameterUnit>& units,
      const DataParallelOptions& options);
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// body(inputs), with the parameters of the unit at hand now and in the backward pass. In a
  /// forward pass every unit runs once, in order. Stages 1 to 3: every rank must call.
  std::vector<Tensor> run_unit(
      size_t unit,
      const std::vector<Tensor>& inputs,
      const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body);
  /// The same of a unit from one tensor to one; x may be undefined.
  Tensor run_unit(size_t unit, const Tensor& x, const std::function<Tensor(const Tensor&)>& body);

  /// Of so many micro-batches; 0: that is not known.
  void begin_step(size_t micro_batches = 0) { reductions_.begin_step(micro_batches); }
  void begin_micro_batch(bool last) { reductions_.begin_micro_batch(last); }
  /// Error (config) naming the parameters that got no gradient, unless those are looked for.
  void end_micro_batch();
  void finish();

  /// After finish(), where they are counted: the squares of the summed gradients, float64 [1] on
  /// their device, each element on one rank of `group` and its replicas. No rank waits for another.
  Tensor squared_gradients() { return reductions_.squares(); }

  /// Before shards are read or written outside a step (a checkpoint): waits for gathers that still
  /// send them.
  void settle() { gathers_.settle(); }
  /// After shards were written: graphs of before are void, and the others' parts are gathered anew
  /// before they are used.
  void parameters_changed();
  /// Makes every parameter whole, for one who reads the model itself; stage 3 drops them again as
  /// units are used.
  void gather_all() { gathers_.gather_all(); }
  /// The parameter whose summed gradient holds the first NaN or infinity, in this rank's shards.
  std::optional<std::string> first_non_finite() const;

  /// Told of moments at which much memory is held: where a unit's forward pass ends, and where a
  /// gradient was written. One at a time.
  void set_at_work(std::function<void(Pass)> at_work) { at_work_ = std::move(at_work); }

  std::vector<FlatUnit>& flats() { return flats_.flats; }
  const std::vector<FlatUnit>& flats() const { return flats_.flats; }
  const ParameterGathers& gathers() const { return gathers_; }
  /// That shards live in; null: none do.
  ShardFile* shard_file() { return file_.get(); }
  /// Bytes of gradients: whole ones while they are written, and the shards' sums.
  int64_t gradient_bytes() const;
  /// Bytes of gradients on their way, and of what is received into.
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
