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

namespace lockstep::optim {

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
};

/// Where a parameter lies in a shard. For optimizers that need a parameter's shape or edges
/// (Adafactor, LAMB); those that work element by element ignore it.
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
};

/// A run of a flat parameter buffer that this rank updates. The tensors are handles: views of the
/// engine's buffers, contiguous, of one length n, which may be 0.
struct Shard {
  std::string name{};      // of the unit, for messages
  at::Tensor parameter{};  // [n] in the training type (float32 or bfloat16)
  at::Tensor master{};     // [n] float32; undefined, or `parameter` itself, where that is float32;
                           // undefined with stochastic rounding
  at::Tensor gradient{};   // [n] float32 or bfloat16; must be defined in update(), not before
  int64_t decayed = 0;     // the first so many elements get weight decay
  std::vector<Segment> layout{};  // empty: it is one parameter of its own name
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

/// Adds a tensor up, in place, over the ranks that hold the other shards of the same parameters.
using SumOverShards = std::function<void(at::Tensor&)>;

/// Not thread-safe across calls for one shard. No collectives but by SumOverShards. State is
/// allocated by add() on the shard's device.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Takes a shard and makes its state (zeros, as of no step). Returns its index: 0, 1, 2, ...
  int64_t add(Shard shard);
  int64_t size() const { return static_cast<int64_t>(shards_.size()); }
  /// To set the gradient anew, or move a buffer (offload).
  Shard& shard(int64_t index) { return shards_.at(static_cast<size_t>(index)); }

  /// One update of every shard: begin_step(), then update() of each.
  void step(double learning_rate, double gradient_scale = 1.0);
  /// Counts a step. Every gradient must be there. Then update() each shard once, in any order.
  /// Where the optimizer looks at whole parameters (Adafactor), it sums over the shards here: every
  /// rank must call.
  void begin_step(double gradient_scale = 1.0);
  /// gradient_scale multiplies the gradient first (the average over tokens, clipping).
  /// Autograd is not told: bump the version of parameters that share the buffer, so that an old
  /// graph fails.
  void update(int64_t index, double learning_rate, double gradient_scale = 1.0);

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
  /// Before the first step; without it the shards are taken to be whole parameters.
  void set_sum_over_shards(SumOverShards sum) { sum_over_shards_ = std::move(sum); }
  /// Bytes of state for each element, for the memory estimate: 8 of AdamW.
  virtual double state_bytes_per_element() const = 0;

 protected:
  explicit Optimizer(OptimizerOptions options) : options_(std::move(options)) {}
  const OptimizerOptions& options() const { return options_; }
  /// The state of the shard just taken.
  virtual void make_state(const Shard& shard) = 0;
  virtual void update_shard(int64_t index, double learning_rate, double gradient_scale) = 0;
  /// What must be known of whole parameters before any shard is updated.
  virtual void prepare(double /*gradient_scale*/) {}
  void sum_over_shards(at::Tensor& tensor) const {
    if (sum_over_shards_) {
      sum_over_shards_(tensor);
    }
  }
  /// Visits [n] state of which element i belongs to element i of the shard.
  void visit_elements(
      int64_t index,
      std::string_view name,
      const at::Tensor& state,
      const StateVisitor& visit) const;

 private:
  OptimizerOptions options_;
  std::vector<Shard> shards_;
  SumOverShards sum_over_shards_;
  int64_t steps_ = 0;
};

/// The optimizer of that name. Throws Error(kConfig) that lists every problem: an unknown or
/// unsupported name, a value out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// The names that make_optimizer knows, sorted.
std::span<const std::string> optimizer_names();

}  // namespace lockstep::optim
