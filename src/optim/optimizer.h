// Optimizer interface. An optimizer updates flat shards and does not depend on ranks, units or the
// model. To add an optimizer, write a subclass in a new file and add a line to the table in
// optimizer.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mesh/cut.h"
#include "optim/update_rule.h"

namespace lockstep::optim {

/// Options for matrices that Muon updates (muon.h), with the names and defaults of
/// torch.optim.Muon.
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t ns_steps = 5;                   // number of Newton-Schulz iterations
  std::string adjust_lr_fn = "original";  // "original" or "match_rms_adamw"
};

/// Options of AdEMAMix's slow average (ademamix.h), with the defaults of transformers.
struct AdEMAMixOptions {
  double beta3 = 0.9999;
  double alpha = 5;
  double t_alpha = 0, t_beta3 = 0;  // number of steps over which alpha and beta3 increase
};

/// Options set by the user, with the names of TrainingArguments.
struct OptimizerOptions {
  std::string optim = "adamw_torch_fused";
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double weight_decay = 0.0;
  /// Trains bfloat16 parameters without float32 master weights: updates are computed in float32 and
  /// rounded stochastically to bfloat16 (stochastic_rounding.h).
  bool stochastic_rounding = false;
  uint64_t seed = 0;  // seed of stochastic rounding
  MuonOptions muon{};
  AdEMAMixOptions ademamix{};
};

/// Position of a parameter in a shard, and its update rule. Element-wise optimizers use only the
/// rule.
struct Segment {
  std::string parameter{};
  std::vector<int64_t> shape{};  // shape of the whole parameter
  int64_t begin = 0;             // index of the parameter's first element in this shard
  int64_t offset = 0;            // offset of that element in the shard
  int64_t count = 0;
  /// If the parameter is a slice of one that several ranks share (tensor parallelism): shape of the
  /// whole parameter, and the slice. Empty: not sliced.
  std::vector<int64_t> whole_shape{};
  mesh::Cut cut{};
  /// Weight of the elements in sums over shards; less than 1 if the elements are replicated on
  /// several ranks.
  double share = 1;
  UpdateRule rule{};
};

/// Contiguous elements [begin, end) of a shard with the same update rule.
struct Run {
  int64_t begin = 0, end = 0;
  size_t rule = 0;  // index in Optimizer::rules()
};

/// Slice of a flat parameter buffer that this rank updates. The tensors are contiguous views of the
/// caller's buffers and have the same length n, which may be 0.
struct Shard {
  std::string name{};      // name of the unit, for messages
  at::Tensor parameter{};  // [n] in the training type (float32 or bfloat16)
  at::Tensor master{};     // [n] float32 master weights; undefined with stochastic rounding. For
                           // float32 parameters: undefined, or `parameter` itself
  at::Tensor gradient{};   // [n] float32 or bfloat16; required only in update()
  std::vector<Segment> layout{};  // sorted by offset; empty: a single parameter with the name of
                                  // the shard
};

/// Slice of a parameter's optimizer state, for checkpoints. The name and the shape of the whole
/// tensor do not depend on the sharding.
struct StatePiece {
  std::string name{};            // "exp_avg"
  std::string parameter{};       // "transformer.wte.weight"
  std::vector<int64_t> shape{};  // shape of the whole tensor
  int64_t begin = 0;             // index of the first element in `data`
  at::Tensor data{};             // flat view of the live state; visitors may read and write it
  bool replicated = false;       // replicated on all ranks, regardless of the sharding of the
                                 // parameter
};
using StateVisitor = std::function<void(const StatePiece&)>;

/// Reduces a tensor in place over the ranks that hold the other shards of the same parameters, by
/// sum or element-wise maximum.
enum class ShardReduction { kSum, kLargest };
using ReduceOverShards = std::function<void(at::Tensor&, ShardReduction)>;

/// This shard's slice of a matrix.
struct MatrixPiece {
  const Segment* segment = nullptr;
  at::Tensor values{};  // [segment->count], writable view
};
/// Maps a whole float32 matrix [rows, columns] to a matrix of the same shape.
using ChangeMatrix = std::function<at::Tensor(const at::Tensor&)>;
/// Assembles the matrices to which `pieces` belong, each on one rank, applies the function to them,
/// and writes the results back to the pieces. Must be called on every rank.
using ChangeMatrices =
    std::function<void(std::span<const MatrixPiece> pieces, const ChangeMatrix& change)>;

/// Base class of optimizers. Calls for the same shard are not thread-safe. An optimizer
/// communicates only through ReduceOverShards and ChangeMatrices. add() allocates the state on the
/// device of the shard.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Adds a shard and creates its state (zeros, step 0). Returns its index: 0, 1, 2, ...
  int64_t add(Shard shard);
  int64_t size() const { return static_cast<int64_t>(shards_.size()); }
  /// Returns a shard, so that callers can set a new gradient or move a buffer (offload). A step may
  /// overwrite the gradient.
  Shard& shard(int64_t index) { return shards_.at(static_cast<size_t>(index)); }

  /// Updates all shards: calls begin_step(), then update() for each shard.
  void step(double learning_rate, double gradient_scale = 1.0);
  /// Starts a step. Then update() must be called once for each shard, in any order. If
  /// looks_ahead(), all gradients must be set before. Optimizers that need whole parameters
  /// (Adafactor, Muon) communicate in this call, so it must be made on every rank.
  void begin_step(double gradient_scale = 1.0);
  /// Updates a shard. The gradient is first multiplied by gradient_scale (token average, clipping).
  /// Autograd does not detect the change: increment the version of parameters that share the
  /// buffer, so that the use of an old graph fails.
  void update(int64_t index, double learning_rate, double gradient_scale = 1.0);

  /// Returns true if begin_step() reads all gradients and the whole state, because update()
  /// requires values of whole parameters.
  virtual bool looks_ahead() const { return false; }

  /// Returns true if the model to use is an average of the trained weights (schedule-free). Between
  /// two steps, put_averages(index, true) writes the averages to a shard's parameters for
  /// evaluation, saving or loading, and put_averages(index, false) restores the trained weights bit
  /// for bit.
  virtual bool has_averages() const { return false; }
  virtual void put_averages(int64_t /*index*/, bool /*are_put*/) {}

  /// Returns true if updates can read their scalars from a tensor on the device, which a CUDA graph
  /// requires. After begin_step() on the host, copy numbers() to the device and call update_by()
  /// for each shard. The result is bit-identical to that of update().
  virtual bool can_be_captured() const { return false; }
  /// Returns the scalars of this step, in host memory.
  virtual at::Tensor numbers(double learning_rate) const;
  /// Updates a shard with `numbers`, which are on the device. First writes `gradient_scale` [1],
  /// also on the device, into them.
  virtual void update_by(
      int64_t index, const at::Tensor& numbers, const at::Tensor& gradient_scale);

  /// Number of completed steps, which checkpoints store.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  /// Returns true if a parameter of this type requires a float32 master copy.
  bool wants_master(at::ScalarType type) const {
    return type != at::kFloat && !(options_.stochastic_rounding && type == at::kBFloat16);
  }
  /// Visits a shard's state by parameter, in a fixed order.
  virtual void visit_state(int64_t index, const StateVisitor& visit) = 0;
  /// Returns the alignment, in elements, that parameters and shards require in their buffers: 256
  /// for 8-bit AdamW, whose blocks must not be split.
  virtual int64_t alignment() const { return 1; }
  /// Set the reduction and the matrix exchange. Call before the first step. By default, shards are
  /// assumed to be whole parameters.
  void set_reduce_over_shards(ReduceOverShards reduce) { reduce_over_shards_ = std::move(reduce); }
  void set_change_matrices(ChangeMatrices change) { change_matrices_ = std::move(change); }
  /// Returns the state bytes per element for the memory estimate, for example 8 for AdamW; the
  /// maximum if it varies.
  virtual double state_bytes_per_element() const = 0;

 protected:
  explicit Optimizer(OptimizerOptions options) : options_(std::move(options)) {}
  const OptimizerOptions& options() const { return options_; }
  /// Returns the distinct rules of all shards added so far, with weight decay resolved.
  std::span<const UpdateRule> rules() const { return rules_; }
  const UpdateRule& rule_of(const Run& run) const { return rules_[run.rule]; }
  /// Returns runs that cover the whole shard, in order. Gaps between parameters belong to the
  /// preceding run.
  std::span<const Run> runs(int64_t index) const { return runs_.at(static_cast<size_t>(index)); }
  /// Creates the state of the shard that was just added, whose runs are runs(index).
  virtual void make_state(int64_t index, const Shard& shard) = 0;
  virtual void update_shard(int64_t index, double learning_rate, double gradient_scale) = 0;
  /// Computes the values that require whole parameters, before any shard is updated.
  virtual void prepare(double /*gradient_scale*/) {}
  void reduce_over_shards(
      at::Tensor& tensor, ShardReduction reduction = ShardReduction::kSum) const {
    if (reduce_over_shards_) {
      reduce_over_shards_(tensor, reduction);
    }
  }
  void change_matrices(std::span<const MatrixPiece> pieces, const ChangeMatrix& change) const;
  /// Visits a state tensor [n] whose element i belongs to element i of the shard.
  void visit_elements(
      int64_t index,
      std::string_view name,
      const at::Tensor& state,
      const StateVisitor& visit) const;

 private:
  size_t number_of(const UpdateRule& rule);
  std::vector<Run> runs_of(const Shard& shard);

  OptimizerOptions options_;
  std::vector<Shard> shards_;
  std::vector<UpdateRule> rules_;
  std::vector<std::vector<Run>> runs_;  // indexed by shard
  ReduceOverShards reduce_over_shards_;
  ChangeMatrices change_matrices_;
  int64_t steps_ = 0;
};

/// Creates an optimizer by name. Throws Error(kConfig) that lists all problems: an unknown or
/// unsupported name, values out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// Returns the names of all optimizers, sorted.
std::span<const std::string> optimizer_names();

}  // namespace lockstep::optim
