// Training steps of a model under any plan.
#include "parallel/parallel_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "nn/low_rank.h"
#include "ops/host_copies.h"
#include "optim/gradient_norm.h"
#include "parallel/gradients.h"

namespace lockstep::parallel {
namespace {

std::vector<nn::LanguageModel*> models_of(std::span<const ShardedModel> stages) {
  std::vector<nn::LanguageModel*> models;
  for (const ShardedModel& stage : stages) {
    models.push_back(stage.model.get());
  }
  return models;
}

std::vector<Accumulation> accumulations_of(std::span<const ShardedModel> stages) {
  std::vector<Accumulation> accumulations;
  for (const ShardedModel& stage : stages) {
    const std::vector<ShardedModel::Engine> engines = stage.engines();
    accumulations.push_back(
        {[engines](bool last) {
           for (const ShardedModel::Engine& each : engines) {
             each.engine->begin_micro_batch(last);
           }
         },
         [engines] {
           for (const ShardedModel::Engine& each : engines) {
             each.engine->end_micro_batch();
           }
         },
         stage.deferred});
  }
  return accumulations;
}

}  // namespace

ParallelModel::ParallelModel(
    std::vector<ShardedModel> stages,
    OffloadedOptimizer optimizer,
    const Plan& plan,
    ParallelGroups& axes,
    objective::ObjectivePointer objective)
    : plan_(plan),
      axes_(axes),
      part_(sequence_part(plan, axes)),
      stages_(std::move(stages)),
      device_(stages_.back().device()),
      is_half_(std::any_of(
          stages_.begin(),
          stages_.end(),
          [](const ShardedModel& stage) { return stage.is_half(); })),
      pipeline_(
          models_of(stages_),
          accumulations_of(stages_),
          plan.pipeline,
          axes.along(mesh::Axis::kPipeline),
          LossOptions{std::move(objective), &axes.along(mesh::Axis::kContext)}),
      optimizer_(std::move(optimizer)),
      optimizer_bytes_(optimizer_.bytes_on(device_)),
      memory_(device_, [this] { return held(); }),
      loss_scale_(is_half_ ? LossScale(plan.loss_scale) : LossScale()),
      expert_loads_(stages_.front().model->config(), plan, axes) {
  visit_engines([this](DataParallel& engine) {
    engine.set_at_work([this](Pass pass) {
      memory_.look(pass == Pass::kForward ? MemoryPhase::kForward : MemoryPhase::kBackward);
    });
  });
}

void ParallelModel::visit_engines(const std::function<void(DataParallel&)>& visit) const {
  for (const ShardedModel& stage : stages_) {
    for (const ShardedModel::Engine& each : stage.engines()) {
      visit(*each.engine);
    }
  }
}

MemoryByKind ParallelModel::held() const {
  MemoryByKind held;
  held.optimizer = optimizer_bytes_;
  visit_engines([&](const DataParallel& engine) {
    held.parameters += engine.gathers().kept_bytes();
    held.gathered += engine.gathers().gathered_bytes();
    held.gradients += engine.gradient_bytes();
    held.buffers += engine.bytes_in_flight();
  });
  return held;
}

StepResult ParallelModel::forward_backward(
    std::span<const nn::ForwardInputs> micro_batches, const objective::Counts& step) {
  return forward_backward(micro_batches, [&step]() -> const objective::Counts& { return step; });
}

bool ParallelModel::needs_counts_first() const {
  return is_half_ || averages_ranks() || expert_loads_.is_mixture() ||
         objective().needs() != objective::Needs::kNothing;
}

StepResult ParallelModel::forward_backward(
    std::span<const nn::ForwardInputs> micro_batches, const CountsOfStep& step) {
  if (!needs_counts_first()) {
    const Tensor sums = accumulate(micro_batches, {}, /*scale=*/1.0);
    return finish_step(sums, step());
  }
  const objective::Counts& counts = step();
  // The optimizer scales gradients anyway, so it also divides by the count. float16 cannot
  // represent the undivided sum, and ranks with different counts must divide before they are
  // summed.
  const bool divides = is_half_ || averages_ranks();
  const double scale = divides ? loss_scale_.value() / counts.divisor() : 1.0;
  return finish_step(accumulate(micro_batches, counts, scale), counts);
}

Tensor ParallelModel::accumulate(
    std::span<const nn::ForwardInputs> micro_batches, const objective::Counts& step, double scale) {
  memory_.look(MemoryPhase::kIdle);
  visit_engines([&](DataParallel& engine) { engine.begin_step(micro_batches.size()); });
  scale_ = scale;
  const std::vector<nn::ForwardInputs> own =
      shard_inputs(expert_loads_.open(micro_batches, scale * step.divisor()), part_);
  Tensor sums = pipeline_.forward_backward(own, step, scale);
  if (averages_ranks()) {
    sums.select(0, 0).div_(step.divisor());
  }
  comm::Pending summed = axes_.data_context().all_reduce(sums);
  visit_engines([](DataParallel& engine) { engine.finish(); });
  summed.wait();
  axes_.along(mesh::Axis::kPipeline).all_reduce(sums).wait();
  experts_ = expert_loads_.close(own);
  sum_tied_copies(stages_, pipeline_.schedules(), axes_.along(mesh::Axis::kPipeline));
  return at::cat({sums, squared_gradients(stages_, axes_, device_)});
}

StepResult ParallelModel::finish_step(const Tensor& sums, const objective::Counts& step) {
  // Ranks with different counts have divided already.
  const double divisor = averages_ranks() ? 1 : step.divisor();
  gradient_factor_ = averages_ranks() ? 1.0 / loss_scale_.value() : 1.0 / divisor / scale_;
  const Tensor numbers = ops::to_host(sums);
  const auto* number = numbers.const_data_ptr<double>();
  StepResult result;
  result.experts = experts_;
  const int64_t count = objective().sums();
  result.sums.assign(number, number + count);
  result.loss = number[0] / divisor;
  result.gradient_norm = std::sqrt(number[count]) * gradient_factor_;
  const bool is_finite = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  overflowed_ = result.overflowed = !is_finite && loss_scale_.can_fall();
  if (!is_finite && !overflowed_) {
    throw_not_finite(stages_, axes_.world(), result.loss, result.gradient_norm);
  }
  gradient_scale_ =
      optim::clip_factor(result.gradient_norm, plan_.max_gradient_norm) * gradient_factor_;
  return result;
}

std::string ParallelModel::carrier_of_gradients() {
  const comm::Communicator& group = axes_.data_context();
  return group.size() == 1 ? ""
                           : group.process_group()->getBackend(device_.type())->getBackendName();
}

void ParallelModel::optimizer_step(double learning_rate) {
  const at::NoGradGuard no_grad;
  if (overflowed_) {
    loss_scale_.overflowed();
    return;
  }
  loss_scale_.succeeded();
  memory_.look(MemoryPhase::kUpdate);
  optimizer_.step(learning_rate, gradient_scale_, [&] {
    optimizer_bytes_ = optimizer_.bytes_on(device_);
    memory_.look(MemoryPhase::kUpdate);
  });
  optimizer_bytes_ = optimizer_.bytes_on(device_);
  state_changed();
  memory_.look(MemoryPhase::kIdle);
}

Tensor ParallelModel::statistics(std::span<const nn::ForwardInputs> batches) {
  const std::vector<nn::ForwardInputs> own = shard_inputs(batches, part_);
  Tensor sums = pipeline_.statistics(own);
  axes_.along(mesh::Axis::kPipeline).all_reduce(sums).wait();
  return sums;
}

std::vector<Tensor> ParallelModel::row_scores(std::span<const nn::ForwardInputs> batches) {
  return pipeline_.row_scores(shard_inputs(batches, part_));
}

std::vector<Tensor> ParallelModel::class_scores(std::span<const nn::ForwardInputs> batches) {
  return pipeline_.class_scores(
      shard_inputs(batches, part_), stages_.front().model->config().head_rows());
}

std::vector<Tensor> ParallelModel::next_tokens(std::span<const nn::ForwardInputs> batches) {
  const at::NoGradGuard no_gradient;
  return pipeline_.next_tokens(shard_inputs(batches, part_));
}

objective::HeadStates ParallelModel::head_states(std::span<const nn::ForwardInputs> batches) {
  return pipeline_.head_states(shard_inputs(batches, part_));
}

void ParallelModel::set_adapters(bool are_on) {
  for (ShardedModel& stage : stages_) {
    nn::set_adapters(*stage.model, are_on);
  }
}

void ParallelModel::visit_state(const std::function<void(const StateSlice&)>& visit) {
  parallel::visit_state(stages_, optimizer_, axes_, visit);
}

void ParallelModel::visit_gradients(const std::function<void(const StateSlice&)>& visit) {
  parallel::visit_gradients(stages_, gradient_factor_, visit);
}

bool ParallelModel::put_averages(bool are_put) {
  if (!optimizer().has_averages() || are_put == averages_are_put_) {
    return false;
  }
  visit_engines([](DataParallel& engine) { engine.settle(); });
  optimizer_.put_averages(are_put);
  averages_are_put_ = are_put;
  state_changed();
  return true;
}

void ParallelModel::state_changed() {
  visit_engines([](DataParallel& engine) { engine.parameters_changed(); });
}

}  // namespace lockstep::parallel
