// ZeRO for arbitrary libtorch modules.
#include "parallel/sharded_data_parallel.h"

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "optim/gradient_norm.h"
#include "parallel/data/shards.h"

namespace lockstep {
namespace {

parallel::ParameterUnit unit_of(const std::string& name, torch::nn::Module& module) {
  parallel::ParameterUnit unit{name, {}};
  for (const auto& parameter : module.named_parameters()) {
    optim::UpdateRule rule;
    if (parameter.value().dim() < 2) {  // weight decay applies to matrices, not to biases and norms
      rule.weight_decay = 0;
    }
    unit.parameters.push_back({name + "." + parameter.key(), parameter.value(), rule});
  }
  return unit;
}

void check_that_all_are_in_units(
    const torch::nn::Module& module, const std::vector<parallel::ParameterUnit>& units) {
  std::set<const void*> held;
  for (const parallel::ParameterUnit& unit : units) {
    for (const parallel::NamedParameter& p : unit.parameters) {
      if (!held.insert(p.tensor.unsafeGetTensorImpl()).second) {
        throw Error(
            ErrorKind::kConfig,
            fmt::format("the parameter {} is in two units", p.name),
            "put modules that share parameters into one unit");
      }
    }
  }
  std::vector<std::string> outside;
  for (const auto& parameter : module.named_parameters()) {
    if (!held.contains(parameter.value().unsafeGetTensorImpl())) {
      outside.push_back(parameter.key());
    }
  }
  if (!outside.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} parameters are in no unit: {}", outside.size(), fmt::join(outside, ", ")),
        "wrap their modules in lockstep::Unit<T>");
  }
}

}  // namespace

ShardedDataParallel::ShardedDataParallel(
    std::shared_ptr<torch::nn::Module> module,
    comm::Communicator& ranks,
    const ShardedDataParallelOptions& options)
    : module_(std::move(module)),
      ranks_(ranks),
      options_(options),
      optimizer_(optim::make_optimizer(options.optimizer), options.offload_optimizer) {
  if (options.optimizer.optim == "muon") {
    throw Error(
        ErrorKind::kConfig,
        "ShardedDataParallel does not support muon: it cannot distinguish hidden matrices of a "
        "module "
        "from embeddings and heads",
        "use adamw, lion_32bit, sgd or adafactor; muon requires a model from parallelize()");
  }
  for (const auto& each : module_->named_modules()) {
    if (auto* wrapped = dynamic_cast<UnitBase*>(each.value().get()); wrapped != nullptr) {
      wrapped_.push_back(wrapped);
      units_.push_back(unit_of(each.key(), wrapped->module_of_unit()));
    }
  }
  if (wrapped_.empty() && module_->as<torch::nn::Sequential>() != nullptr) {
    for (const auto& child : module_->named_children()) {
      units_.push_back(unit_of(child.key(), *child.value()));
    }
  }
  check_that_all_are_in_units(*module_, units_);
  parallel::DataParallelOptions engine;
  engine.zero_stage = options.zero_stage;
  engine.prefetch_units = options.prefetch_units;
  engine.bucket_megabytes = options.bucket_megabytes;
  engine.alignment = optimizer_.optimizer().alignment();
  engine.counts_squares = true;
  engine_ = std::make_unique<parallel::DataParallel>(ranks, units_, engine);
  for (size_t unit = 0; unit < wrapped_.size(); ++unit) {
    wrapped_[unit]->around = [this, unit](const at::Tensor& x, const UnitBase::Body& body) {
      return engine_->run_unit(unit, x, body);
    };
  }
  parallel::add_shards(*engine_, ranks_, optimizer_);
}

ShardedDataParallel::~ShardedDataParallel() {
  for (UnitBase* unit : wrapped_) {
    unit->around = nullptr;
  }
}

at::Tensor ShardedDataParallel::forward(const at::Tensor& x) {
  auto* sequential = module_->as<torch::nn::Sequential>();
  if (sequential == nullptr || !wrapped_.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "forward() requires a Sequential without units of its own",
        "call the module directly: its units gather their parameters");
  }
  at::Tensor y = x;
  size_t unit = 0;
  for (auto& child : *sequential) {
    y = engine_->run_unit(
        unit++, y, [&](const at::Tensor& in) { return child.forward<at::Tensor>(in); });
  }
  return y;
}

void ShardedDataParallel::backward(const at::Tensor& loss, MicroBatch which) {
  engine_->begin_micro_batch(which == MicroBatch::kLast);
  loss.backward();
  engine_->end_micro_batch();
}

double ShardedDataParallel::step(double learning_rate) {
  engine_->finish();
  const bool mean = options_.gradient == ShardedDataParallelOptions::Gradient::kMeanOfRanks;
  const double scale = mean ? 1.0 / ranks_.size() : 1.0;
  at::Tensor squares = engine_->squared_gradients();
  ranks_.all_reduce(squares).wait();
  const double norm = scale * std::sqrt(squares.item<double>());
  if (!std::isfinite(norm)) {
    throw Error(
        ErrorKind::kNumeric,
        fmt::format("the gradient norm is {}", norm),
        "lower the learning rate, or clip gradients");
  }
  optimizer_.step(learning_rate, scale * optim::clip_factor(norm, options_.max_gradient_norm));
  engine_->parameters_changed();
  return norm;
}

}  // namespace lockstep
