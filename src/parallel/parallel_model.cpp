#include "parallel/parallel_model.h"

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>

#include "base/error.h"
#include "base/format.h"
#include "model/parameters.h"
#include "optim/gradient_norm.h"

namespace lockstep::parallel {
namespace {

/// The model's parameters by unit, in order of use. The rule of which decay is the model
/// description's.
std::vector<ParameterUnit> units_of(nn::LanguageModel& model) {
  std::map<std::string, bool> decays;
  for (const model::ParameterSpec& spec : model::parameters_of(model.config())) {
    decays[spec.name] = spec.decays;
  }
  std::map<std::string, Tensor> tensors;
  model.visit_parameters(
      [&](const std::string& name, Tensor& tensor) { tensors.emplace(name, tensor); });
  std::vector<ParameterUnit> units;
  for (const std::vector<std::string>& names : model.units()) {
    ParameterUnit unit{names.empty() ? "" : names.front(), {}};
    for (const std::string& name : names) {
      unit.parameters.push_back({name, tensors.at(name), decays.at(name)});
    }
    units.push_back(std::move(unit));
  }
  return units;
}

/// The part [begin, end) of n elements that a rank of a group owns.
std::pair<int64_t, int64_t> share_of(int64_t n, int64_t rank, int64_t ranks) {
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

}  // namespace

ParallelModel::ParallelModel(
    ShardedModel model,
    const Plan& plan,
    std::unique_ptr<Axes> own,
    Axes* axes,
    const SequencePart& part)
    : own_axes_(std::move(own)),
      axes_(axes == nullptr ? *own_axes_ : *axes),
      model_(std::move(model.model)),
      sharded_(std::move(model.parameters)),
      plan_(plan),
      part_(part),
      optimizer_(optim::make_optimizer(plan.optimizer)) {
  const std::vector<ParameterUnit> units = units_of(*model_);
  DataParallelOptions options;
  options.bucket_megabytes = plan.bucket_megabytes;
  options.find_unused_parameters = plan.find_unused_parameters;
  at::ScalarType type = at::kFloat;
  for (const ParameterUnit& unit : units) {
    for (const NamedParameter& p : unit.parameters) {
      parameters_ += c10::multiply_integers(shape_of(p.name, p.tensor));
      type = p.tensor.scalar_type();
      if (!p.tensor.requires_grad()) {
        frozen_.push_back(p);
      }
    }
  }
  // Sums over micro-batches are kept in float32: added in bfloat16, small gradients would be lost.
  options.gradient_type = plan.accumulation_steps > 1 ? at::kFloat : type;
  data_parallel_ = std::make_unique<DataParallel>(axes_.gradients(), units, options);
  const at::NoGradGuard no_grad;
  for (Bucket& bucket : data_parallel_->buckets()) {
    optim::Shard shard;
    shard.name = bucket.entries.front().name;
    shard.parameter = bucket.values;
    shard.master = type == at::kFloat ? bucket.values : bucket.values.to(at::kFloat);
    shard.gradient = bucket.gradient;
    shard.decayed = bucket.decayed;
    for (const Bucket::Entry& entry : bucket.entries) {
      shard.layout.push_back(
          {entry.name, entry.parameter.sizes().vec(), 0, entry.offset, entry.count});
    }
    optimizer_->add(std::move(shard));
  }
}

ParallelModel::ParallelModel(
    ShardedModel model, const Plan& plan, Axes& axes, const SequencePart& part)
    : ParallelModel(std::move(model), plan, nullptr, &axes, part) {}

ParallelModel::ParallelModel(
    std::unique_ptr<nn::LanguageModel> model, const Plan& plan, comm::Communicator& data_group)
    : ParallelModel(
          {std::move(model), {}},
          plan,
          std::make_unique<Axes>(data_group, mesh::Mesh{.data = data_group.size()}),
          nullptr,
          SequencePart{}) {}

const mesh::Cut& ParallelModel::cut_of(const std::string& name) const {
  static const mesh::Cut whole;
  const auto found = sharded_.find(name);
  return found == sharded_.end() ? whole : found->second.cut;
}

std::vector<int64_t> ParallelModel::shape_of(const std::string& name, const Tensor& part) const {
  const auto found = sharded_.find(name);
  return found == sharded_.end() ? part.sizes().vec() : found->second.shape;
}

double ParallelModel::squared_gradient_norm() const {
  double squares = 0;
  for (const Bucket& bucket : data_parallel_->buckets()) {
    if (sharded_.empty()) {
      squares += optim::squared_norm(bucket.gradient);
      continue;
    }
    // What several ranks of the model hold counts once over all of them.
    for (const Bucket::Entry& entry : bucket.entries) {
      squares += optim::squared_norm(bucket.gradient.narrow(0, entry.offset, entry.count)) /
                 cut_of(entry.name).copies;
    }
  }
  Tensor all = at::full({1}, squares, at::kDouble);
  axes_.model().all_reduce(all).wait();
  return all.item<double>();
}

StepResult ParallelModel::forward_backward(
    std::span<const nn::ForwardInputs> micro_batches, int64_t target_tokens) {
  StepResult result;
  data_parallel_->begin_step();
  Tensor losses = at::zeros({1}, at::kDouble);
  const double scale = 1.0 / static_cast<double>(std::max<int64_t>(target_tokens, 1));
  for (size_t i = 0; i < micro_batches.size(); ++i) {
    data_parallel_->begin_micro_batch(i + 1 == micro_batches.size());
    const Tensor loss = model_->loss(shard_inputs(micro_batches[i], part_));
    (loss * scale).backward();
    data_parallel_->end_micro_batch();
    losses.add_(loss.detach().to(at::kCPU, at::kDouble));
  }
  comm::Pending summed = axes_.gradients().all_reduce(losses);
  data_parallel_->finish();
  summed.wait();
  result.loss_sum = losses.item<double>();

  result.gradient_norm = std::sqrt(squared_gradient_norm());
  if (!std::isfinite(result.loss_sum) || !std::isfinite(result.gradient_norm)) {
    const auto name = data_parallel_->first_non_finite();
    throw Error(
        ErrorKind::kNumeric,
        fmt::format(
            "the loss is {} and the gradient norm {}{}",
            result.loss_sum * scale,
            result.gradient_norm,
            name ? fmt::format("; the first bad gradient is that of {}", *name) : ""),
        "lower training.learning_rate, lengthen training.warmup_steps, or clip with "
        "training.max_grad_norm; the checkpoints before this step are good");
  }
  gradient_scale_ = optim::clip_factor(result.gradient_norm, plan_.max_gradient_norm);
  return result;
}

void ParallelModel::optimizer_step(double learning_rate) {
  const at::NoGradGuard no_grad;
  optimizer_->step(learning_rate, gradient_scale_);
  data_parallel_->parameters_changed();
}

Tensor ParallelModel::statistics(const nn::ForwardInputs& inputs) {
  return model_->statistics(shard_inputs(inputs, part_));
}

void ParallelModel::visit_state(const std::function<void(const StateSlice&)>& visit) {
  const at::NoGradGuard no_grad;
  const auto each = [&](const std::string& group,
                        const std::string& prefix,
                        const std::string& parameter,
                        const std::vector<int64_t>& shape,
                        const Tensor& flat,
                        int64_t bucket_offset,
                        std::pair<int64_t, int64_t> owned) {
    const mesh::Cut& cut = cut_of(parameter);
    // The rank's share of the bucket, seen from this parameter.
    const auto clamp = [&](int64_t at) {
      return cut.copy > 0 ? 0 : std::min(std::max<int64_t>(at - bucket_offset, 0), flat.numel());
    };
    visit(
        {group, prefix + parameter, shape, cut, 0, flat, clamp(owned.first), clamp(owned.second)});
  };
  const int ranks = axes_.gradients().size(), rank = axes_.gradients().rank();
  int64_t index = 0;
  for (Bucket& bucket : data_parallel_->buckets()) {
    const optim::Shard& shard = optimizer_->shard(index);
    const auto owned = share_of(bucket.values.numel(), rank, ranks);
    for (const Bucket::Entry& entry : bucket.entries) {
      const std::vector<int64_t> shape = shape_of(entry.name, entry.parameter);
      const auto part = [&](const Tensor& flat) {
        return flat.narrow(0, entry.offset, entry.count);
      };
      each("model", "", entry.name, shape, part(bucket.values), entry.offset, owned);
      if (shard.master.data_ptr() != shard.parameter.data_ptr()) {
        each("optimizer", "master.", entry.name, shape, part(shard.master), entry.offset, owned);
      }
      optimizer_->visit_state(
          index, [&](std::string_view state, Tensor& tensor, optim::StateLayout) {
            each(
                "optimizer",
                fmt::format("{}.", state),
                entry.name,
                shape,
                part(tensor),
                entry.offset,
                owned);
          });
    }
    ++index;
  }
  for (NamedParameter& p : frozen_) {
    const Tensor flat = p.tensor.detach().view({-1});
    each(
        "model",
        "",
        p.name,
        shape_of(p.name, p.tensor),
        flat,
        0,
        share_of(flat.numel(), rank, ranks));
  }
}

void ParallelModel::visit_gradients(const std::function<void(const StateSlice&)>& visit) {
  for (const Bucket& bucket : data_parallel_->buckets()) {
    for (const Bucket::Entry& entry : bucket.entries) {
      visit(
          {"gradient",
           entry.name,
           shape_of(entry.name, entry.parameter),
           cut_of(entry.name),
           0,
           bucket.gradient.narrow(0, entry.offset, entry.count),
           0,
           0});
    }
  }
}

void ParallelModel::state_changed() {
  data_parallel_->parameters_changed();
}

}  // namespace lockstep::parallel
