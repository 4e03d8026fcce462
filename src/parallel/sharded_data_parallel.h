// ZeRO for any libtorch module. The units are the children of a torch::nn::Sequential, or the
// submodules that a module wraps in Unit<T>.
//
//   lockstep::ShardedDataParallel sharded(model.ptr(), ranks, {.zero_stage = 3});
//   for (const auto& [x, target] : batches) {
//     sharded.begin_step();
//     sharded.backward(torch::mse_loss(sharded.forward(x), target));
//     sharded.step(/*learning_rate=*/1e-3);
//   }
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>

#include "comm/communicator.h"
#include "optim/optimizer.h"
#include "parallel/data/data_parallel.h"
#include "parallel/offload/offloaded_optimizer.h"

namespace lockstep {

/// Base class of units, by which ShardedDataParallel finds them in a module.
class UnitBase {
 public:
  using Body = std::function<at::Tensor(const at::Tensor&)>;
  virtual ~UnitBase() = default;
  virtual torch::nn::Module& module_of_unit() = 0;
  /// Runs the unit's body. Set by ShardedDataParallel; if empty, the body runs directly.
  std::function<at::Tensor(const at::Tensor& x, const Body& body)> around;
};

template <class T>
class UnitImpl : public torch::nn::Module, public UnitBase {
 public:
  template <class... Arguments>
  explicit UnitImpl(Arguments&&... arguments)
      : module(register_module("module", T(std::forward<Arguments>(arguments)...))) {}
  at::Tensor forward(const at::Tensor& x) {
    const Body body = [this](const at::Tensor& in) { return module->forward(in); };
    return around ? around(x, body) : body(x);
  }
  torch::nn::Module& module_of_unit() override { return *module; }

  T module;
};

/// A submodule whose parameters are gathered when it is called and freed afterwards. T is a module
/// holder (torch::nn::Linear) whose forward function maps a tensor to a tensor. Every unit must run
/// once per forward pass, in the order of registration.
template <class T>
class Unit : public torch::nn::ModuleHolder<UnitImpl<T>> {
 public:
  using torch::nn::ModuleHolder<UnitImpl<T>>::ModuleHolder;
};

struct ShardedDataParallelOptions {
  int zero_stage = 3;
  optim::OptimizerOptions optimizer{};
  parallel::OptimizerOffload offload_optimizer{};
  double max_gradient_norm = 0;  // 0: no clipping
  enum class Gradient { kMeanOfRanks, kSumOfRanks } gradient = Gradient::kMeanOfRanks;
  int64_t prefetch_units = 1;
  double bucket_megabytes = 25;
};

/// Trains a module on the ranks of a group; each rank processes its slice of the batch. Takes over
/// the storage of the parameters and broadcasts rank 0's values. All ranks must make the same calls
/// in the same order. Throws Error (config) that names parameters outside all units.
class ShardedDataParallel {
 public:
  ShardedDataParallel(
      std::shared_ptr<torch::nn::Module> module,
      comm::Communicator& ranks,
      const ShardedDataParallelOptions& options = {});
  /// Restores the forward functions of the units. Parameters that are freed stay freed.
  ~ShardedDataParallel();
  ShardedDataParallel(const ShardedDataParallel&) = delete;
  ShardedDataParallel& operator=(const ShardedDataParallel&) = delete;

  /// Runs a Sequential. Call the module itself if it wraps its units in Unit<T>.
  at::Tensor forward(const at::Tensor& x);

  void begin_step() { engine_->begin_step(); }
  enum class MicroBatch { kMore, kLast };
  /// Calls loss.backward(). Gradients are accumulated over the micro-batches of a step.
  void backward(const at::Tensor& loss, MicroBatch which = MicroBatch::kLast);
  /// Clips gradients and updates parameters. Returns the gradient norm before clipping. Throws
  /// Error (numeric) if the norm is NaN or Inf.
  double step(double learning_rate);

  /// Gathers all parameters for reading or saving. They stay gathered until the units run again.
  void gather_parameters() { engine_->gather_all(); }
  parallel::DataParallel& engine() { return *engine_; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  comm::Communicator& ranks_;
  ShardedDataParallelOptions options_;
  std::vector<parallel::ParameterUnit> units_;
  std::vector<UnitBase*> wrapped_;
  std::unique_ptr<parallel::DataParallel> engine_;
  parallel::OffloadedOptimizer optimizer_;
};

}  // namespace lockstep
