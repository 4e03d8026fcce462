// Implements the training methods that `lockstep bench` compares.
#include "cli/bench_sides.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/clock.h"
#include "base/cores.h"
#include "base/counter_random.h"
#include "base/format.h"
#include "comm/threads.h"
#include "nn/initialize.h"
#include "nn/language_model.h"
#include "ops/host_memory.h"
#include "optim/optimizer.h"
#include "parallel/one_process/data_parallel.h"
#include "parallel/parallelize.h"

namespace lockstep::cli {
namespace {

constexpr uint64_t kSeed = 1;
constexpr double kLearningRate = 1e-4;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

model::ModelConfig config_of(const BenchOptions& options) {
  return model::parse_model_config(
      fmt::format(
          R"({{"model_type": "gpt2", "vocab_size": {}, "n_positions": {}, "n_embd": {},
               "n_layer": {}, "n_head": {}, "activation_function": "gelu_new", "resid_pdrop": 0,
               "embd_pdrop": 0, "attn_pdrop": 0}})",
          options.vocabulary,
          options.length,
          options.width,
          options.layers,
          std::max<int64_t>(options.width / 64, 1)),
      "the model of the benchmark");
}

at::ScalarType type_of(const BenchOptions& options) {
  return options.float32 ? at::kFloat : at::kBFloat16;
}

/// Returns the random tokens of a step, [rows, length], with the rows of all ranks in order.
at::Tensor tokens_of(const BenchOptions& options, int64_t step) {
  at::Tensor ids = at::empty({options.ranks * options.rows, options.length}, at::kLong);
  const uint64_t key = derive_key(kSeed, static_cast<uint64_t>(step));
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data_ptr<int64_t>()[i] = static_cast<int64_t>(
        random_bits(key, static_cast<uint64_t>(i)) % static_cast<uint64_t>(options.vocabulary));
  }
  return ids;
}

nn::ForwardInputs inputs_of(const at::Tensor& ids, c10::Device device) {
  nn::ForwardInputs inputs;
  inputs.ids = ids.to(device);
  inputs.targets = nn::next_tokens(inputs.ids);
  inputs.samples = at::arange(ids.size(0), at::kLong);
  inputs.training = true;
  return inputs;
}

int64_t targets_of(const BenchOptions& options) {
  return options.ranks * options.rows * (options.length - 1);
}

parallel::Plan plan_of(int stage = 0) {
  parallel::Plan plan;
  plan.zero_stage = stage;
  return plan;
}

/// Model with a parallel plan, trained on one rank.
class Trainee {
 public:
  Trainee(
      const BenchOptions& options,
      std::string name,
      const parallel::Plan& plan,
      train::RankContext& rank_context)
      : options_(options),
        name_(std::move(name)),
        rank_context_(rank_context),
        axes_(
            rank_context.communicator,
            mesh::Mesh{.data = static_cast<int>(options.ranks)},
            rank_context.group) {
    const model::ModelConfig config = config_of(options);
    model_ = parallel::parallelize(
        {config, type_of(options), rank_context.device, parallel::fill_at_random(config, kSeed)},
        plan,
        axes_);
  }

  void step(int64_t number) {
    const at::Tensor own =
        tokens_of(options_, number).narrow(0, rank_context_.rank() * options_.rows, options_.rows);
    const std::vector<nn::ForwardInputs> inputs{inputs_of(own, rank_context_.device)};
    rank_context_.communicator.barrier();
    const double began = seconds_now();
    const auto result = model_->forward_backward(inputs, targets_of(options_));
    model_->optimizer_step(kLearningRate);
    rank_context_.communicator.barrier();
    if (number >= options_.warm) {
      seconds_.push_back(seconds_now() - began);
    }
    loss_ = result.loss;
  }

  BenchFigures figures() const {
    const auto held = model_->memory().of(parallel::MemoryPhase::kIdle).fullest;
    return {name_, median(seconds_), held.parameters + held.gradients + held.optimizer, loss_};
  }

 private:
  const BenchOptions& options_;
  std::string name_;
  train::RankContext& rank_context_;
  parallel::ParallelGroups axes_;
  std::unique_ptr<parallel::ParallelModel> model_;
  std::vector<double> seconds_;
  double loss_ = 0;
};

std::vector<c10::Device> devices_of(const BenchOptions& options) {
  std::vector<c10::Device> devices;
  const bool gpus = !options.use_cpu && train::visible_gpus() > 0;
  for (int64_t rank = 0; rank < options.ranks; ++rank) {
    devices.push_back(
        gpus ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(rank))
             : c10::Device(c10::kCPU));
  }
  return devices;
}

/// Returns a model whose forward pass returns the sum of its rows' losses, [1].
Replica make_replica(const BenchOptions& options, c10::Device device) {
  std::shared_ptr<nn::LanguageModel> model =
      nn::make_model(config_of(options), type_of(options), device);
  Replica replica;
  model->visit_parameters(
      [&](const std::string&, at::Tensor& parameter) { replica.parameters.push_back(parameter); });
  replica.forward = [model, device](const std::vector<at::Tensor>& inputs) {
    return model->loss(inputs_of(inputs.front(), device)).reshape({1});
  };
  return replica;
}

/// AdamW for a module's parameters, with the settings that the plans use.
class PlainUpdate {
 public:
  explicit PlainUpdate(const std::vector<at::Tensor>& parameters)
      : parameters_(parameters),
        optimizer_(optim::make_optimizer({})) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : parameters_) {
      const at::Tensor flat = parameter.detach().view({-1});
      optimizer_->add(
          {.name = "parameter",
           .parameter = flat,
           .master = flat.scalar_type() == at::kFloat ? flat : flat.to(at::kFloat)});
    }
  }
  void step() {
    for (size_t index = 0; index < parameters_.size(); ++index) {
      at::Tensor& gradient = parameters_[index].mutable_grad();
      optimizer_->shard(static_cast<int64_t>(index)).gradient = gradient.reshape({-1});
      gradient.reset();
    }
    optimizer_->step(kLearningRate);
  }

 private:
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

}  // namespace

BenchFigures run_replicating(const BenchOptions& options) {
  ops::keep_host_memory();
  const std::vector<c10::Device> devices = devices_of(options);
  const auto model = nn::make_model(config_of(options), type_of(options), devices.front());
  nn::initialize(*model, kSeed);
  std::vector<at::Tensor> parameters;
  model->visit_parameters(
      [&](const std::string&, at::Tensor& parameter) { parameters.push_back(parameter); });
  DataParallel parallel(
      parameters, [&](c10::Device device) { return make_replica(options, device); }, devices);
  PlainUpdate update(parameters);
  std::vector<double> seconds;
  double loss = 0;
  for (int64_t step = 0; step < options.warm + options.steps; ++step) {
    const at::Tensor ids = tokens_of(options, step);
    const double began = seconds_now();
    const at::Tensor sum = parallel.forward({ids}).sum() / targets_of(options);
    sum.backward();
    update.step();
    loss = sum.item<double>();
    if (step >= options.warm) {
      seconds.push_back(seconds_now() - began);
    }
  }
  return {"DataParallel, one process", median(seconds), 0, loss};
}

BenchFigures run_threads(const BenchOptions& options) {
  ops::keep_host_memory();
  const std::vector<c10::Device> devices = devices_of(options);
  comm::ThreadedRanks threads;
  threads.size = static_cast<int>(options.ranks);
  threads.compute_threads = std::max(1, usable_cpus() / static_cast<int>(options.ranks));
  if (!devices.front().is_cpu()) {
    threads.devices = devices;
  }
  BenchFigures figures;
  comm::run_ranks(threads, [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    const c10::Device device = devices[static_cast<size_t>(rank)];
    train::use_device(device);
    train::RankContext rank_context{
        .store = {}, .communicator = std::move(communicator), .device = device, .local_rank = rank};
    rank_context.group.device = device;
    const BenchFigures own = run_process(options, rank_context);
    if (rank == 0) {
      figures = own;
    }
  });
  figures.name = "ranks as threads (--in-process)";
  return figures;
}

BenchFigures run_process(const BenchOptions& options, train::RankContext& rank_context) {
  Trainee trainee(options, "ranks as processes", plan_of(), rank_context);
  for (int64_t step = 0; step < options.warm + options.steps; ++step) {
    trainee.step(step);
  }
  return trainee.figures();
}

std::vector<BenchFigures> run_stages(
    const BenchOptions& options, train::RankContext& rank_context) {
  std::vector<std::unique_ptr<Trainee>> trainees;
  const auto add = [&](int stage, bool offloads) {
    parallel::Plan plan = plan_of(stage);
    if (offloads) {
      plan.offload_optimizer.device = parallel::OffloadDevice::kCpu;
      plan.offload_parameters = stage == 3;
    }
    trainees.push_back(std::make_unique<Trainee>(
        options,
        fmt::format("stage {}{}", stage, offloads ? ", offload" : ""),
        plan,
        rank_context));
  };
  add(0, false);
  add(1, false);
  for (const int stage : {2, 3}) {
    add(stage, false);
    add(stage, true);
  }
  // Run the plans alternately, so that other load on the machine affects all of them equally.
  for (int64_t step = 0; step < options.warm + options.steps; ++step) {
    for (const auto& trainee : trainees) {
      trainee->step(step);
    }
  }
  std::vector<BenchFigures> figures;
  for (const auto& trainee : trainees) {
    figures.push_back(trainee->figures());
  }
  return figures;
}

}  // namespace lockstep::cli
