// Data parallelism with ZeRO stages 0 to 3 (Rajbhandari et al., 2020), implemented as one engine
// over units. Each rank processes its slice of the batch, and gradients are reduced while the
// backward pass runs. The stage determines which values, gradients and optimizer state a rank
// stores (flat_unit.h). All stages share the same code.
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
      25;  // stages 0 to 2: maximum size of a buffer shared by units (ddp_bucket_cap_mb)
  int64_t prefetch_units = 1;                  // number of units that are gathered ahead of use
  std::optional<int64_t> prefetch_elements{};  // prefetch limit in elements instead of units
  int64_t persistence_threshold = 0;           // stage 3: smaller parameters are not sharded
  bool find_unused_parameters = false;         // false: a parameter without a gradient is an error
  /// Type of the gradient accumulation buffers; nullopt: the parameters' type.
  std::optional<at::ScalarType> gradient_type{};
  /// Type in which gradients are sent; nullopt: the type of the buffers.
  std::optional<at::ScalarType> reduce_type{};
  bool offload_parameters = false;           // stage 3: keep parameter shards in host memory
  std::filesystem::path parameter_folder{};  // stage 3: folder of the file that holds the parameter
                                             // shards
  int64_t alignment = 1;  // in elements; parameters and shards start at multiples of it
  /// Provides the initial values; each rank reads only its own shards. Empty: the parameters
  /// already have values, and rank 0's values are broadcast.
  ParameterSource source{};
  /// Ranks that hold replicas of this rank's shards (hybrid sharding: shards within a node,
  /// replicas across nodes); null: no replicas.
  comm::Communicator* replicas = nullptr;
  /// Returns the update rule of a parameter; empty: use NamedParameter::rule.
  std::function<optim::UpdateRule(const std::string& name)> rule_of{};
  /// Accumulates squared gradients for squared_gradients().
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
  /// Takes over the storage of the parameters. The ranks of `group` share one copy of the training
  /// state. Must be called on every rank with equal units. The communicators must outlive the
  /// engine.
  DataParallel(
      comm::Communicator& group,
      const std::vector<ParameterUnit>& units,
      const DataParallelOptions& options);
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Returns body(inputs). The unit's parameters are available during the call and in the backward
  /// pass. In a forward pass every unit must run once, in order. With stages 1 to 3, must be called
  /// on every rank.
  std::vector<Tensor> run_unit(
      size_t unit,
      const std::vector<Tensor>& inputs,
      const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body);
  /// Overload for a unit with one input and one output; x may be undefined.
  Tensor run_unit(size_t unit, const Tensor& x, const std::function<Tensor(const Tensor&)>& body);

  /// Starts a step with the given number of micro-batches; 0: unknown.
  void begin_step(size_t micro_batches = 0) { reductions_.begin_step(micro_batches); }
  void begin_micro_batch(bool last) { reductions_.begin_micro_batch(last); }
  /// Throws Error (config) that names parameters without a gradient, unless unused parameters are
  /// allowed.
  void end_micro_batch();
  void finish();

  /// Returns the sum of squares of the summed gradients: float64 [1] on their device. Requires
  /// finish() and `counts_squares`. Each element is counted on one rank of `group` and its
  /// replicas. Does not communicate.
  Tensor squared_gradients() { return reductions_.squares(); }

  /// Waits for gathers that still send shards. Must be called before shards are read or written
  /// outside a step (checkpoints).
  void settle() { gathers_.settle(); }
  /// Must be called after shards were modified. Earlier autograd graphs become invalid, and other
  /// ranks' shards are gathered again before use.
  void parameters_changed();
  /// Gathers all parameters for callers that read the model directly. Stage 3 frees them again as
  /// units are used.
  void gather_all() { gathers_.gather_all(); }
  /// Returns the name of the first parameter with NaN or Inf in this rank's shard of its summed
  /// gradient.
  std::optional<std::string> first_non_finite() const;

  /// Sets the callback that is called when memory use is high: after a unit's forward pass, and
  /// after a gradient was written. A new callback replaces the previous one.
  void set_at_work(std::function<void(Pass)> at_work) { at_work_ = std::move(at_work); }

  std::vector<FlatUnit>& flats() { return flats_.flats; }
  const std::vector<FlatUnit>& flats() const { return flats_.flats; }
  const ParameterGathers& gathers() const { return gathers_; }
  /// Returns the file that stores the shards; null: none.
  ShardFile* shard_file() { return file_.get(); }
  /// Returns the bytes of gradients: unreduced gradients of whole units and summed shards.
  int64_t gradient_bytes() const;
  /// Returns the bytes of gradients in flight and of receive buffers.
  int64_t bytes_in_flight() const { return reductions_.bytes_in_flight(); }
  /// Returns the number of reductions that started before the backward passes of the last step
  /// ended.
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
