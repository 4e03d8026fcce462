// The seam of the optimizers: each works on flat shards and knows nothing of ranks, units or the
// model. A new one is a file with a subclass, and a line in the table of optimizer.cpp.
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

/// Of matrices that Muon updates (muon.h): torch.optim.Muon's names and defaults.
struct MuonOptions {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t ns_steps = 5;                   // of Newton and Schulz's iteration
  std::string adjust_lr_fn = "original";  // or match_rms_adamw
};

/// AdEMAMix's second average (ademamix.h): transformers' defaults.
struct AdEMAMixOptions {
  double beta3 = 0.9999;
  double alpha = 5;
  double t_alpha = 0, t_beta3 = 0;  // steps over which they grow
};

/// What the user set: TrainingArguments' names.
struct OptimizerOptions {
  std::string optim = "adamw_torch_fused";
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double weight_decay = 0.0;
  /// Bfloat16 parameters have no float32 masters: an update is made in float32, and rounded to one
  /// of the two neighbours at random, the nearer one the likelier (stochastic_rounding.h).
  bool stochastic_rounding = false;
  uint64_t seed = 0;  // of the rounding
  MuonOptions muon{};
  AdEMAMixOptions ademamix{};
};

/// Where a parameter lies in a shard, and how it is updated. Optimizers that work element by
/// element look at the rule alone.
struct Segment {
  std::string parameter{};
  std::vector<int64_t> shape{};  // of the whole parameter
  int64_t begin = 0;             // the first of its elements that this shard holds
  int64_t offset = 0;            // where that one lies in the shard
  int64_t count = 0;
  /// Where the parameter is itself a part of one that several ranks share (tensor parallelism): the
  /// shape of that one, and which part. Empty: it is the whole.
  std::vector<int64_t> whole_shape{};
  mesh::Cut cut{};
  /// How much its elements count in sums over shards: less than all where several ranks hold them.
  double share = 1;
  UpdateRule rule{};
};

/// Neighbouring elements [begin, end) of a shard that are updated alike.
struct Run {
  int64_t begin = 0, end = 0;
  size_t rule = 0;  // in Optimizer::rules()
};

/// A run of a flat parameter buffer that this rank updates. The tensors are handles: views of the
/// engine's buffers, contiguous, of one length n, which may be 0.
struct Shard {
  std::string name{};      // of the unit, for messages
  at::Tensor parameter{};  // [n] in the training type (float32 or bfloat16)
  at::Tensor master{};     // [n] float32; undefined, or `parameter` itself, where that is float32;
                           // undefined with stochastic rounding
  at::Tensor gradient{};   // [n] float32 or bfloat16; must be defined in update(), not before
  std::vector<Segment> layout{};  // by offset; empty: it is one parameter of its own name
};

/// A part of a parameter's state, for checkpoints: a run of a tensor whose name and shape do not
/// depend on the shards.
struct StatePiece {
  std::string name{};            // "exp_avg"
  std::string parameter{};       // "transformer.wte.weight"
  std::vector<int64_t> shape{};  // of the whole tensor
  int64_t begin = 0;             // the first of its elements that `data` holds
  at::Tensor data{};             // flat, a view of the live state: may be read and written
  bool replicated = false;       // every rank holds all of it, however the parameter is sharded
};
using StateVisitor = std::function<void(const StatePiece&)>;

/// Sums a tensor up, in place, over the ranks that hold the other shards of the same parameters; or
/// takes the largest of each element.
enum class ShardReduction { kSum, kLargest };
using ReduceOverShards = std::function<void(at::Tensor&, ShardReduction)>;

/// What a shard holds of a matrix.
struct MatrixPiece {
  const Segment* segment = nullptr;
  at::Tensor values{};  // [segment->count], a view that is written
};
/// From a whole matrix [rows, columns], float32, to one of the same shape.
using ChangeMatrix = std::function<at::Tensor(const at::Tensor&)>;
/// Makes the matrices whole that `pieces`, over all ranks, are of, changes each on one rank, and
/// writes what it became into the pieces. Every rank must call.
using ChangeMatrices =
    std::function<void(std::span<const MatrixPiece> pieces, const ChangeMatrix& change)>;

/// Not thread-safe across calls for one shard. No collectives but by ReduceOverShards and
/// ChangeMatrices. State is allocated by add() on the shard's device.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Takes a shard and makes its state (zeros, as of no step). Returns its index: 0, 1, 2, ...
  int64_t add(Shard shard);
  int64_t size() const { return static_cast<int64_t>(shards_.size()); }
  /// To set the gradient anew, or move a buffer (offload). A step may write into the gradient.
  Shard& shard(int64_t index) { return shards_.at(static_cast<size_t>(index)); }

  /// One update of every shard: begin_step(), then update() of each.
  void step(double learning_rate, double gradient_scale = 1.0);
  /// Counts a step. Where looks_ahead(), every gradient must be there. Then update() each shard
  /// once, in any order. Where the optimizer looks at whole parameters (Adafactor, Muon), it talks
  /// to the other ranks here: every rank must call.
  void begin_step(double gradient_scale = 1.0);
  /// gradient_scale multiplies the gradient first (the average over tokens, clipping).
  /// Autograd is not told: bump the version of parameters that share the buffer, so that an old
  /// graph fails.
  void update(int64_t index, double learning_rate, double gradient_scale = 1.0);

  /// Whether begin_step() reads all gradients and state, for what update() needs of whole
  /// parameters.
  virtual bool looks_ahead() const { return false; }

  /// Whether the model is not what is trained, but averages of it (schedule-free). Between two
  /// steps put_averages(index, true) puts them into the parameters of a shard, to be evaluated,
  /// saved or loaded, and put_averages(index, false) what is trained, to the bit.
  virtual bool has_averages() const { return false; }
  virtual void put_averages(int64_t /*index*/, bool /*are_put*/) {}

  /// Whether updates can take their numbers from a tensor on the shards' device, as a step that a
  /// CUDA graph holds must. Then, after begin_step() on the host: numbers(), a copy of them on the
  /// device, and update_by() of each shard, to the same bits as update().
  virtual bool can_be_captured() const { return false; }
  /// Of this step, in host memory.
  virtual at::Tensor numbers(double learning_rate) const;
  /// `gradient_scale` [1], on the device, is written into the numbers.
  virtual void update_by(
      int64_t index, const at::Tensor& numbers, const at::Tensor& gradient_scale);

  /// Steps done: saved in a checkpoint, set on resume.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  /// Whether a parameter of this type is to come with a float32 master.
  bool wants_master(at::ScalarType type) const {
    return type != at::kFloat && !(options_.stochastic_rounding && type == at::kBFloat16);
  }
  /// The state of a shard, by parameter, in a fixed order.
  virtual void visit_state(int64_t index, const StateVisitor& visit) = 0;
  /// Parameters and shards must begin at multiples of so many elements of their buffers: 256 of the
  /// 8-bit AdamW, whose blocks are not to be cut.
  virtual int64_t alignment() const { return 1; }
  /// Before the first step; without them the shards are taken to be whole parameters.
  void set_reduce_over_shards(ReduceOverShards reduce) { reduce_over_shards_ = std::move(reduce); }
  void set_change_matrices(ChangeMatrices change) { change_matrices_ = std::move(change); }
  /// Bytes of state for each element, for the memory estimate: 8 of AdamW. At most, where they
  /// differ.
  virtual double state_bytes_per_element() const = 0;

 protected:
  explicit Optimizer(OptimizerOptions options) : options_(std::move(options)) {}
  const OptimizerOptions& options() const { return options_; }
  /// The different rules of the shards taken so far, their weight decays given.
  std::span<const UpdateRule> rules() const { return rules_; }
  const UpdateRule& rule_of(const Run& run) const { return rules_[run.rule]; }
  /// The whole of a shard, in order; gaps between parameters belong to what is before them.
  std::span<const Run> runs(int64_t index) const { return runs_.at(static_cast<size_t>(index)); }
  /// The state of the shard just taken, whose runs are those of `index`.
  virtual void make_state(int64_t index, const Shard& shard) = 0;
  virtual void update_shard(int64_t index, double learning_rate, double gradient_scale) = 0;
  /// What must be known of whole parameters before any shard is updated.
  virtual void prepare(double /*gradient_scale*/) {}
  void reduce_over_shards(
      at::Tensor& tensor, ShardReduction reduction = ShardReduction::kSum) const {
    if (reduce_over_shards_) {
      reduce_over_shards_(tensor, reduction);
    }
  }
  void change_matrices(std::span<const MatrixPiece> pieces, const ChangeMatrix& change) const;
  /// Visits [n] state of which element i belongs to element i of the shard.
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
  std::vector<std::vector<Run>> runs_;  // by shard
  ReduceOverShards reduce_over_shards_;
  ChangeMatrices change_matrices_;
  int64_t steps_ = 0;
};

/// The optimizer of that name. Throws Error(kConfig) that lists every problem: an unknown or
/// unsupported name, a value out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// The names that make_optimizer knows, sorted.
std::span<const std::string> optimizer_names();

}  // namespace lockstep::optim
