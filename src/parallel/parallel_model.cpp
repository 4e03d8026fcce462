#include "parallel/parallel_model.h"

#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/format.h"
#include "model/parameters.h"
#include "optim/gradient_norm.h"
#include "parallel/pipeline/tied.h"

namespace lockstep::parallel {
namespace {

/// Whether the model is a stage that holds one of the two copies of a tied weight.
bool holds_tied_copy(const nn::LanguageModel& model) {
  return model.config().tie_word_embeddings && model.part().embedding != model.part().head;
}

/// The model's parameters by unit, in order of use; a tied weight's copy is a unit of its own,
/// so that its shards are alike on both stages. The rule of which decay is the model description's.
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
      NamedParameter parameter{name, tensors.at(name), decays.at(name)};
      if (holds_tied_copy(model) && name == model::embedding_name(model.config())) {
        units.push_back({name, {std::move(parameter)}});
      } else {
        unit.parameters.push_back(std::move(parameter));
      }
    }
    units.push_back(std::move(unit));
  }
  return units;
}

/// The part [begin, end) of n elements that a rank of a group owns.
std::pair<int64_t, int64_t> share_of(int64_t n, int64_t rank, int64_t ranks) {
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

std::vector<ShardedModel> one(std::unique_ptr<nn::LanguageModel> model) {
  std::vector<ShardedModel> parts;
  parts.push_back({std::move(model), {}});
  return parts;
}

/// The gradient of a parameter in an engine's buffers; undefined where it has none.
Tensor gradient_of(DataParallel& engine, const std::string& name) {
  for (Bucket& bucket : engine.buckets()) {
    for (const Bucket::Entry& entry : bucket.entries) {
      if (entry.name == name) {
        return bucket.gradient.narrow(0, entry.offset, entry.count);
      }
    }
  }
  return {};
}

}  // namespace

const mesh::Cut& ParallelModel::HeldStage::cut_of(const std::string& name) const {
  static const mesh::Cut whole;
  const auto found = sharded.find(name);
  return found == sharded.end() ? whole : found->second.cut;
}

std::vector<int64_t> ParallelModel::HeldStage::shape_of(
    const std::string& name, const Tensor& part) const {
  const auto found = sharded.find(name);
  return found == sharded.end() ? part.sizes().vec() : found->second.shape;
}

double ParallelModel::HeldStage::squared_gradients() const {
  double squares = 0;
  for (const Bucket& bucket : engine->buckets()) {
    if (sharded.empty()) {
      squares += optim::squared_norm(bucket.gradient);
      continue;
    }
    // What several ranks of the model hold counts once over all of them.
    for (const Bucket::Entry& entry : bucket.entries) {
      squares += optim::squared_norm(bucket.gradient.narrow(0, entry.offset, entry.count)) /
                 cut_of(entry.name).copies;
    }
  }
  return squares;
}

ParallelModel::ParallelModel(
    std::vector<ShardedModel> stages,
    const Plan& plan,
    std::unique_ptr<Axes> own,
    Axes* axes,
    const SequencePart& part)
    : own_axes_(std::move(own)),
      axes_(axes == nullptr ? *own_axes_ : *axes),
      plan_(plan),
      part_(part),
      optimizer_(optim::make_optimizer(plan.optimizer)) {
  std::vector<nn::LanguageModel*> models;
  std::vector<Accumulation> accumulations;
  for (ShardedModel& stage : stages) {
    stages_.push_back(make_stage(std::move(stage)));
    models.push_back(stages_.back().model.get());
    DataParallel& engine = *stages_.back().engine;
    accumulations.push_back(
        {[&engine](bool last) { engine.begin_micro_batch(last); },
         [&engine] { engine.end_micro_batch(); }});
    add_shards(engine);
  }
  pipeline_ = std::make_unique<Pipeline>(
      models, accumulations, plan.pipeline, axes_.along(mesh::Axis::kPipeline));
}

ParallelModel::ParallelModel(
    std::vector<ShardedModel> stages, const Plan& plan, Axes& axes, const SequencePart& part)
    : ParallelModel(std::move(stages), plan, nullptr, &axes, part) {}

ParallelModel::ParallelModel(
    std::unique_ptr<nn::LanguageModel> model, const Plan& plan, comm::Communicator& data_group)
    : ParallelModel(
          one(std::move(model)),
          plan,
          std::make_unique<Axes>(data_group, mesh::Mesh{.data = data_group.size()}),
          nullptr,
          SequencePart{}) {}

ParallelModel::HeldStage ParallelModel::make_stage(ShardedModel model) {
  HeldStage stage;
  const std::vector<ParameterUnit> units = units_of(*model.model);
  DataParallelOptions options;
  options.bucket_megabytes = plan_.bucket_megabytes;
  options.find_unused_parameters = plan_.find_unused_parameters;
  at::ScalarType type = at::kFloat;
  for (const ParameterUnit& unit : units) {
    for (const NamedParameter& p : unit.parameters) {
      type = p.tensor.scalar_type();
      if (!p.tensor.requires_grad()) {
        stage.frozen.push_back(p);
      }
    }
  }
  // Sums over micro-batches are kept in float32: added in bfloat16, small gradients would be lost.
  options.gradient_type = plan_.accumulation_steps > 1 ? at::kFloat : type;
  stage.model = std::move(model.model);
  stage.sharded = std::move(model.parameters);
  stage.engine = std::make_unique<DataParallel>(axes_.gradients(), units, options);
  return stage;
}

void ParallelModel::add_shards(DataParallel& engine) {
  const at::NoGradGuard no_grad;
  for (Bucket& bucket : engine.buckets()) {
    optim::Shard shard;
    shard.name = bucket.entries.front().name;
    shard.parameter = bucket.values;
    shard.master =
        bucket.values.scalar_type() == at::kFloat ? bucket.values : bucket.values.to(at::kFloat);
    shard.gradient = bucket.gradient;
    shard.decayed = bucket.decayed;
    for (const Bucket::Entry& entry : bucket.entries) {
      shard.layout.push_back(
          {entry.name, entry.parameter.sizes().vec(), 0, entry.offset, entry.count});
    }
    optimizer_->add(std::move(shard));
  }
}

void ParallelModel::sum_tied() {
  Tensor first, last;
  for (HeldStage& stage : stages_) {
    if (holds_tied_copy(*stage.model)) {
      (stage.model->part().embedding ? first : last) =
          gradient_of(*stage.engine, model::embedding_name(stage.model->config()));
    }
  }
  const Schedules& schedules = pipeline_->schedules();
  sum_tied_gradients(
      first,
      last,
      schedules.rank_of(0),
      schedules.rank_of(schedules.stages() - 1),
      axes_.along(mesh::Axis::kPipeline));
}

StepResult ParallelModel::forward_backward(
    std::span<const nn::ForwardInputs> micro_batches, int64_t target_tokens) {
  for (HeldStage& stage : stages_) {
    stage.engine->begin_step();
  }
  const double scale = 1.0 / static_cast<double>(std::max<int64_t>(target_tokens, 1));
  const std::vector<nn::ForwardInputs> own = shard_inputs(micro_batches, part_);
  Tensor loss = pipeline_->forward_backward(own, scale);
  comm::Pending summed = axes_.gradients().all_reduce(loss);
  for (HeldStage& stage : stages_) {
    stage.engine->finish();
  }
  summed.wait();
  axes_.along(mesh::Axis::kPipeline).all_reduce(loss).wait();
  sum_tied();

  Tensor squares = at::zeros({1}, at::kDouble);
  for (const HeldStage& stage : stages_) {
    squares.add_(stage.squared_gradients());
  }
  axes_.model().all_reduce(squares).wait();
  const StepResult result{loss.item<double>(), std::sqrt(squares.item<double>())};
  if (!std::isfinite(result.loss_sum) || !std::isfinite(result.gradient_norm)) {
    throw_not_finite(result.loss_sum * scale, result.gradient_norm);
  }
  gradient_scale_ = optim::clip_factor(result.gradient_norm, plan_.max_gradient_norm);
  return result;
}

void ParallelModel::throw_not_finite(double loss, double norm) const {
  std::optional<std::string> name;
  for (const HeldStage& stage : stages_) {
    name = name ? name : stage.engine->first_non_finite();
  }
  throw Error(
      ErrorKind::kNumeric,
      fmt::format(
          "the loss is {} and the gradient norm {}{}",
          loss,
          norm,
          name ? fmt::format("; the first bad gradient is that of {}", *name) : ""),
      "lower training.learning_rate, lengthen training.warmup_steps, or clip with "
      "training.max_grad_norm; the checkpoints before this step are good");
}

void ParallelModel::optimizer_step(double learning_rate) {
  const at::NoGradGuard no_grad;
  optimizer_->step(learning_rate, gradient_scale_);
  state_changed();
}

Tensor ParallelModel::statistics(std::span<const nn::ForwardInputs> batches) {
  const std::vector<nn::ForwardInputs> own = shard_inputs(batches, part_);
  Tensor sums = pipeline_->statistics(own);
  axes_.along(mesh::Axis::kPipeline).all_reduce(sums).wait();
  return sums;
}

void ParallelModel::visit_state(const std::function<void(const StateSlice&)>& visit) {
  const at::NoGradGuard no_grad;
  int64_t shard = 0;
  for (HeldStage& stage : stages_) {
    visit_stage(stage, shard, visit);
  }
}

void ParallelModel::visit_stage(
    HeldStage& stage, int64_t& index, const std::function<void(const StateSlice&)>& visit) {
  const auto each = [&](const std::string& group,
                        const std::string& prefix,
                        const std::string& parameter,
                        const std::vector<int64_t>& shape,
                        const Tensor& flat,
                        int64_t bucket_offset,
                        std::pair<int64_t, int64_t> owned) {
    const mesh::Cut& cut = stage.cut_of(parameter);
    // The rank's share of the bucket, seen from this parameter.
    const auto clamp = [&](int64_t at) {
      return cut.copy > 0 ? 0 : std::min(std::max<int64_t>(at - bucket_offset, 0), flat.numel());
    };
    visit(
        {group, prefix + parameter, shape, cut, 0, flat, clamp(owned.first), clamp(owned.second)});
  };
  const int ranks = axes_.gradients().size(), rank = axes_.gradients().rank();
  for (Bucket& bucket : stage.engine->buckets()) {
    const optim::Shard& shard = optimizer_->shard(index);
    const auto owned = share_of(bucket.values.numel(), rank, ranks);
    for (const Bucket::Entry& entry : bucket.entries) {
      const std::vector<int64_t> shape = stage.shape_of(entry.name, entry.parameter);
      const auto part_of = [&](const Tensor& flat) {
        return flat.narrow(0, entry.offset, entry.count);
      };
      each("model", "", entry.name, shape, part_of(bucket.values), entry.offset, owned);
      if (shard.master.data_ptr() != shard.parameter.data_ptr()) {
        each("optimizer", "master.", entry.name, shape, part_of(shard.master), entry.offset, owned);
      }
      optimizer_->visit_state(
          index, [&](std::string_view state, Tensor& tensor, optim::StateLayout) {
            each(
                "optimizer",
                fmt::format("{}.", state),
                entry.name,
                shape,
                part_of(tensor),
                entry.offset,
                owned);
          });
    }
    ++index;
  }
  for (NamedParameter& p : stage.frozen) {
    const Tensor flat = p.tensor.detach().view({-1});
    each(
        "model",
        "",
        p.name,
        stage.shape_of(p.name, p.tensor),
        flat,
        0,
        share_of(flat.numel(), rank, ranks));
  }
}

void ParallelModel::visit_gradients(const std::function<void(const StateSlice&)>& visit) {
  for (HeldStage& stage : stages_) {
    for (const Bucket& bucket : stage.engine->buckets()) {
      for (const Bucket::Entry& entry : bucket.entries) {
        visit(
            {"gradient",
             entry.name,
             stage.shape_of(entry.name, entry.parameter),
             stage.cut_of(entry.name),
             0,
             bucket.gradient.narrow(0, entry.offset, entry.count),
             0,
             0});
      }
    }
  }
}

void ParallelModel::state_changed() {
  for (HeldStage& stage : stages_) {
    stage.engine->parameters_changed();
  }
}

}  // namespace lockstep::parallel
