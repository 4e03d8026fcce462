// Sums tied gradients, computes the gradient norm, and finds NaN and Inf.
#include "parallel/gradients.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "parallel/pipeline/tied.h"
#include "parallel/ranks/tied_copies.h"

namespace lockstep::parallel {
namespace {

/// Returns this rank's summed gradient of a parameter that has its own flat unit. Undefined if the
/// engine does not hold the parameter.
Tensor gradient_of(const DataParallel& engine, const std::string& name) {
  for (const FlatUnit& flat : engine.flats()) {
    if (flat.entries.size() == 1 && flat.entries.front().name == name && flat.trainable) {
      return flat.shard_gradient;
    }
  }
  return {};
}

}  // namespace

void sum_tied_copies(
    std::span<const ShardedModel> stages,
    const Schedules& schedules,
    comm::Communicator& pipeline) {
  for (const std::string& name : stages.front().model->shared_with_head) {
    Tensor first, last;
    for (const ShardedModel& stage : stages) {
      if (holds_tied_copy(*stage.model)) {
        (stage.model->part().embedding ? first : last) = gradient_of(*stage.engine, name);
      }
    }
    sum_tied_gradients(
        first, last, schedules.rank_of(0), schedules.rank_of(schedules.stages() - 1), pipeline);
  }
}

Tensor squared_gradients(
    std::span<const ShardedModel> stages, ParallelGroups& axes, c10::Device device) {
  Tensor squares;
  for (const ShardedModel& stage : stages) {
    for (const ShardedModel::Engine& each : stage.engines()) {
      const Tensor own = each.engine->squared_gradients().to(device);
      squares = squares.defined() ? squares.add_(own) : own;
    }
  }
  axes.data_context().all_reduce(squares).wait();
  axes.model().all_reduce(squares).wait();
  return squares;
}

void throw_not_finite(
    std::span<const ShardedModel> stages, comm::Communicator& world, double loss, double norm) {
  // All ranks see the same norm, so all of them reach this point. The bad element may be in another
  // rank's shard.
  std::optional<std::string> own;
  for (const ShardedModel& stage : stages) {
    for (const ShardedModel::Engine& each : stage.engines()) {
      own = own ? own : each.engine->first_non_finite();
    }
  }
  const auto names = comm::gather_strings(world, own.value_or(""));
  const auto name = std::find_if(
      names.begin(), names.end(), [](const std::string& found) { return !found.empty(); });
  throw Error(
      ErrorKind::kNumeric,
      fmt::format(
          "the loss is {} and the gradient norm is {}{}",
          loss,
          norm,
          name != names.end()
              ? fmt::format("; the first parameter with NaN or Inf in its gradient is {}", *name)
              : ""),
      "lower training.learning_rate, increase training.warmup_steps, or clip with "
      "training.max_grad_norm; checkpoints from before this step are not affected");
}

}  // namespace lockstep::parallel
