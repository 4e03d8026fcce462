// Pipeline parallelism for torch::nn::Sequential.
#include "parallel/pipeline/sequential.h"

#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include <ATen/ops/zeros.h>
#include <torch/nn/modules/container/sequential.h>

#include "base/error.h"
#include "base/format.h"
#include "model/split.h"
#include "model/stages.h"

namespace lockstep::parallel {
namespace {

using torch::nn::AnyModule;
using torch::nn::AnyValue;

constexpr size_t kMostInTuple = 8;

template <size_t... I>
auto tuple_of(const Tensors& tensors, std::index_sequence<I...> /*indices*/) {
  return std::make_tuple(tensors[I]...);
}
template <class Tuple>
Tensors from_tuple(const Tuple& tuple) {
  return std::apply([](const auto&... tensors) { return Tensors{tensors...}; }, tuple);
}
template <size_t N>
using TupleOf = decltype(tuple_of({}, std::make_index_sequence<N>()));

/// Calls function.operator()<N>() where N is `count`, from 2 to kMostInTuple. Returns false if
/// `count` is outside this range or the call did not return true.
template <size_t N = 2, class Function>
bool with_count([[maybe_unused]] size_t count, [[maybe_unused]] const Function& function) {
  if constexpr (N <= kMostInTuple) {
    if (count == N && function.template operator()<N>()) {
      return true;
    }
    return with_count<N + 1>(count, function);
  }
  return false;
}

[[noreturn]] void throw_not_tensors(const std::string& what) {
  throw Error(
      ErrorKind::kConfig,
      what,
      fmt::format(
          "modules of a pipeline must accept and return a Tensor, or a std::tuple of 2 to {} "
          "Tensors",
          kMostInTuple));
}

Tensors tensors_of(AnyValue value, size_t module) {
  if (const Tensor* tensor = value.try_get<Tensor>()) {
    return {*tensor};
  }
  Tensors tensors;
  for (size_t count = 2; count <= kMostInTuple && tensors.empty(); ++count) {
    with_count(count, [&]<size_t N>() {
      const auto* tuple = value.try_get<TupleOf<N>>();
      if (tuple != nullptr) {
        tensors = from_tuple(*tuple);
      }
      return tuple != nullptr;
    });
  }
  if (tensors.empty()) {
    throw_not_tensors(fmt::format(
        "module {} of the Sequential returns a {}",
        module,
        c10::demangle(value.type_info().name())));
  }
  return tensors;
}

AnyValue value_of(const Tensors& tensors) {
  if (tensors.size() == 1) {
    return AnyValue(Tensor(tensors.front()));
  }
  std::optional<AnyValue> value;
  with_count(tensors.size(), [&]<size_t N>() {
    value.emplace(tuple_of(tensors, std::make_index_sequence<N>()));
    return true;
  });
  if (!value) {
    throw_not_tensors(
        fmt::format("{} tensors are passed from one module to the next", tensors.size()));
  }
  return std::move(*value);
}

/// Calls a module with the inputs as separate arguments, as Sequential::forward does for the first
/// module.
AnyValue call_with_arguments(AnyModule& module, const Tensors& inputs) {
  if (inputs.size() == 1) {
    return module.any_forward(inputs.front());
  }
  std::optional<AnyValue> value;
  with_count(inputs.size(), [&]<size_t N>() {
    value.emplace(std::apply(
        [&](const auto&... tensors) { return module.any_forward(tensors...); },
        tuple_of(inputs, std::make_index_sequence<N>())));
    return true;
  });
  if (!value) {
    throw_not_tensors(fmt::format("a micro-batch has {} tensors", inputs.size()));
  }
  return std::move(*value);
}

uint64_t signature_of(const Tensors& tensors) {
  std::string text;
  for (const TensorLayout& layout : layouts_of(tensors)) {
    text += fmt::format("{}[{}]", c10::toString(layout.type), fmt::join(layout.sizes, ","));
  }
  return std::hash<std::string>()(text) >> 1;
}

}  // namespace

/// A stage that consists of consecutive modules of a Sequential.
class SequentialStage final : public Stage {
 public:
  SequentialStage(std::vector<AnyModule> modules, size_t first, bool is_last)
      : modules_(std::move(modules)),
        first_(first),
        is_last_(is_last) {}

  void begin(std::span<const Tensors> inputs, const SequentialPipeline::Loss& loss) {
    inputs_ = inputs;
    loss_ = &loss;
    sum_ = at::zeros({1}, at::kDouble);
  }
  const Tensor& sum() const { return sum_; }

  Tensors forward(int micro_batch, const Tensors& inputs) override {
    const Tensors* tensors = first_ == 0 ? &inputs_[static_cast<size_t>(micro_batch)] : &inputs;
    AnyValue value = first_ == 0 ? call_with_arguments(modules_.front(), *tensors)
                                 : modules_.front().any_forward(value_of(*tensors));
    for (size_t i = 1; i < modules_.size(); ++i) {
      value = modules_[i].any_forward(std::move(value));
    }
    Tensors outputs = tensors_of(std::move(value), first_ + modules_.size() - 1);
    if (!is_last_) {
      return outputs;
    }
    const Tensor loss = (*loss_)(outputs, micro_batch);
    sum_.add_(loss.detach().to(at::kCPU, at::kDouble));
    return {loss};
  }
  Tensors parameters() override {
    Tensors result;
    for (const AnyModule& module : modules_) {
      for (const Tensor& parameter : module.ptr()->parameters()) {
        result.push_back(parameter);
      }
    }
    return result;
  }

 private:
  std::vector<AnyModule> modules_;
  size_t first_;
  bool is_last_;
  std::span<const Tensors> inputs_;
  const SequentialPipeline::Loss* loss_ = nullptr;
  Tensor sum_ = at::zeros({1}, at::kDouble);
};

namespace {

std::vector<int64_t> modules_of_stages(
    const torch::nn::Sequential& modules, const std::string& split, int stages) {
  const auto count = static_cast<int64_t>(modules->size());
  if (stages > count) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} pipeline stages for a Sequential of {} modules", stages, count),
        "use fewer ranks, or fewer stages per rank");
  }
  if (split != "auto" && split != "parameters") {
    std::vector<int64_t> counts = model::parse_split(split, count, stages, "module");
    if (counts.front() == 0 || counts.back() == 0) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("parallel.split={} leaves a stage without a module", split),
          "give each stage at least one module");
    }
    return counts;
  }
  model::SplitCosts costs;
  for (const AnyModule& module : *modules) {
    double elements = 1;  // base cost, so that modules without parameters also count
    for (const Tensor& parameter : module.ptr()->parameters()) {
      elements += static_cast<double>(parameter.numel());
    }
    costs.items.push_back(elements);
  }
  return model::split_evenly(costs, stages);
}

}  // namespace

SequentialPipeline::SequentialPipeline(
    const torch::nn::Sequential& modules,
    const PipelineOptions& options,
    comm::Communicator& group,
    c10::Device device)
    : group_(group),
      schedules_(options, group.size()),
      mailbox_(group, device, schedules_.rank_of_stage()) {
  const std::vector<int64_t> counts =
      modules_of_stages(modules, options.split, schedules_.stages());
  std::ptrdiff_t first = 0;
  for (int stage = 0; stage < schedules_.stages(); ++stage) {
    const auto begin = modules->begin() + first;
    const std::ptrdiff_t own = counts[static_cast<size_t>(stage)];
    if (schedules_.rank_of(stage) == group_.rank()) {
      stages_.push_back(std::make_unique<SequentialStage>(
          std::vector<AnyModule>(begin, begin + own),
          static_cast<size_t>(first),
          stage + 1 == schedules_.stages()));
    }
    first += own;
  }
}

SequentialPipeline::~SequentialPipeline() = default;

double SequentialPipeline::forward_backward(std::span<const Tensors> inputs, const Loss& loss) {
  // Only the first stage's rank knows the shapes; the other ranks receive signatures.
  Tensor signatures = at::zeros({static_cast<int64_t>(inputs.size())}, at::kLong);
  const int first_rank = schedules_.rank_of(0);
  if (group_.rank() == first_rank) {
    for (size_t m = 0; m < inputs.size(); ++m) {
      signatures.data_ptr<int64_t>()[m] = static_cast<int64_t>(signature_of(inputs[m]));
    }
  }
  group_.broadcast(signatures, first_rank).wait();
  std::vector<Stage*> stages;
  for (const auto& stage : stages_) {
    stage->begin(inputs, loss);
    stages.push_back(stage.get());
  }
  const auto* numbers = signatures.data_ptr<int64_t>();
  Executor executor(schedules_.of(static_cast<int>(inputs.size())), stages, group_, mailbox_);
  executor.run(std::vector<uint64_t>(numbers, numbers + inputs.size()));
  Tensor sum = stages_.back()->sum().clone();
  group_.all_reduce(sum).wait();
  return sum.item<double>();
}

Tensors SequentialPipeline::parameters() const {
  Tensors result;
  for (const auto& stage : stages_) {
    for (const Tensor& parameter : stage->parameters()) {
      result.push_back(parameter);
    }
  }
  return result;
}

}  // namespace lockstep::parallel
