#include "parallel/parallel_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "optim/gradient_norm.h"
#include "parallel/pipeline/tied.h"

namespace lockstep::parallel {
namespace {

/// Whether the model is a stage that holds one of the two copies of a tied weight.
bool holds_tied_copy(const nn::LanguageModel& model) {
  return model.config().ties_head() && model.part().embedding != model.part().head;
}

bool is_tied_copy(const nn::LanguageModel& model, const std::string& parameter) {
  return holds_tied_copy(model) && parameter == model::embedding_name(model.config());
}

std::string unit_name(const nn::LanguageModel& model, size_t unit, size_t units) {
  const nn::ModelPart& part = model.part();
  if (part.embedding && unit == 0) {
    return "embedding";
  }
  if (part.head && unit + 1 == units) {
    return "head";
  }
  return fmt::format(
      "layer {}", part.first_layer + static_cast<int64_t>(unit) - (part.embedding ? 1 : 0));
}

/// The model's parameters by unit, in order of use; a tied weight's copy lies alone, so that its
/// shards are alike on both stages. The rule of which decay is the model description's.
std::vector<ParameterUnit> units_of(nn::LanguageModel& model, const ShardedParameters& sharded) {
  std::map<std::string, Tensor> tensors;
  model.visit_parameters(
      [&](const std::string& name, Tensor& tensor) { tensors.emplace(name, tensor); });
  std::vector<ParameterUnit> units;
  const auto names_of_units = model.units();
  for (const std::vector<std::string>& names : names_of_units) {
    ParameterUnit unit{unit_name(model, units.size(), names_of_units.size()), {}};
    for (const std::string& name : names) {
      const auto part = sharded.find(name);
      unit.parameters.push_back(
          {name,
           tensors.at(name),
           model.specs.at(name).decays,
           is_tied_copy(model, name),
           part == sharded.end() ? nullptr : part->second.summed_over});
    }
    units.push_back(std::move(unit));
  }
  if (model.part().embedding) {
    units.front().backward_reads_parameters = false;
    if (model.part().head && model.config().ties_head()) {
      units.back().also_uses.push_back(0);
    }
  }
  return units;
}

/// The part [begin, end) of n elements that a rank of a group owns.
std::pair<int64_t, int64_t> share_of(int64_t n, int64_t rank, int64_t ranks) {
  return {n * rank / ranks, n * (rank + 1) / ranks};
}

std::vector<ShardedModel> one(std::unique_ptr<nn::LanguageModel> model, ParameterSource source) {
  std::vector<ShardedModel> parts;
  parts.push_back({std::move(model), {}, std::move(source)});
  return parts;
}

/// The summed gradient of a parameter that lies alone, as this rank holds it; undefined where the
/// engine has none.
Tensor gradient_of(DataParallel& engine, const std::string& name) {
  for (FlatUnit& flat : engine.flats()) {
    if (flat.entries.size() == 1 && flat.entries.front().name == name && flat.trainable) {
      return flat.shard_gradient;
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
    const std::string& name, const std::vector<int64_t>& part) const {
  const auto found = sharded.find(name);
  return found == sharded.end() ? part : found->second.shape;
}

std::unique_ptr<nn::LanguageModel> model_without_memory(
    const model::ModelConfig& config, at::ScalarType type, at::Device device) {
  auto model = nn::make_model(config, type, at::kMeta);
  model->visit_parameters([&](const std::string&, Tensor& tensor) {
    tensor = unallocated_parameter(
        tensor.sizes(), tensor.options().device(device), tensor.requires_grad());
  });
  return model;
}

ParallelModel::ParallelModel(
    std::vector<ShardedModel> stages,
    const Plan& plan,
    std::unique_ptr<Axes> own,
    Axes* axes,
    const SequencePart& part,
    objective::ObjectivePointer objective)
    : own_axes_(std::move(own)),
      axes_(axes == nullptr ? *own_axes_ : *axes),
      plan_(plan),
      part_(part),
      groups_(make_shard_groups(axes_, plan.zero_stage > 0 ? plan.shard_ranks : 0)),
      optimizer_(optim::make_optimizer(plan.optimizer), plan.offload_optimizer) {
  check_plan(plan, axes_.mesh());
  std::vector<nn::LanguageModel*> models;
  std::vector<Accumulation> accumulations;
  for (ShardedModel& stage : stages) {
    stages_.push_back(make_stage(std::move(stage)));
    models.push_back(stages_.back().model.get());
    DataParallel& engine = *stages_.back().engine;
    accumulations.push_back(
        {[&engine](bool last) { engine.begin_micro_batch(last); },
         [&engine] { engine.end_micro_batch(); },
         stages_.back().deferred});
    add_shards(engine, *groups_.shards, optimizer_, parts_of(stages_.back()));
  }
  pipeline_ = std::make_unique<Pipeline>(
      models,
      accumulations,
      plan.pipeline,
      axes_.along(mesh::Axis::kPipeline),
      LossOptions{std::move(objective), &axes_.along(mesh::Axis::kContext)});
  optimizer_bytes_ = optimizer_.bytes_on(device_);
  memory_ = std::make_unique<MemoryAccount>(device_, [this] { return held(); });
}

ParallelModel::ParallelModel(
    std::vector<ShardedModel> stages,
    const Plan& plan,
    Axes& axes,
    const SequencePart& part,
    objective::ObjectivePointer objective)
    : ParallelModel(std::move(stages), plan, nullptr, &axes, part, std::move(objective)) {}

ParallelModel::ParallelModel(
    std::unique_ptr<nn::LanguageModel> model,
    const Plan& plan,
    comm::Communicator& data_group,
    ParameterSource source,
    objective::ObjectivePointer objective)
    : ParallelModel(
          one(std::move(model), std::move(source)),
          plan,
          std::make_unique<Axes>(data_group, mesh::Mesh{.data = data_group.size()}),
          nullptr,
          SequencePart{},
          std::move(objective)) {}

ParallelModel::HeldStage ParallelModel::make_stage(ShardedModel model) {
  HeldStage stage;
  // First the linears' seam, then what is put around it.
  if (Schedules(plan_.pipeline, axes_.mesh().pipeline).splits_backward()) {
    stage.deferred = std::make_shared<DeferredQueue>();
    defer_weight_gradients(*model.model, stage.deferred);
  }
  apply_recompute(*model.model, plan_.recompute, stage.deferred);
  const std::vector<ParameterUnit> units = units_of(*model.model, model.parameters);
  bool is_half = false;
  for (const ParameterUnit& unit : units) {
    for (const NamedParameter& p : unit.parameters) {
      is_half = is_half || p.tensor.scalar_type() == at::kHalf;
      device_ = p.tensor.device();
    }
  }
  DataParallelOptions options;
  options.zero_stage = plan_.zero_stage;
  options.prefetch_units = plan_.prefetch_units;
  options.prefetch_elements = plan_.prefetch_elements;
  options.persistence_threshold = plan_.persistence_threshold;
  options.bucket_megabytes = plan_.bucket_megabytes;
  options.find_unused_parameters = plan_.find_unused_parameters;
  // On a device, shards that begin at multiples of 128 bytes go through the widest loads.
  options.alignment =
      std::max<int64_t>(optimizer_.optimizer().alignment(), device_.is_cpu() ? 1 : 64);
  options.offload_parameters = plan_.offload_parameters;
  options.parameter_folder = plan_.parameter_folder;
  options.source = std::move(model.source);
  options.replicas = groups_.replicas;
  options.reduce_type = plan_.reduce_type;
  options.at_work = [this](Pass pass) {
    if (memory_ != nullptr) {
      memory_->look(pass == Pass::kForward ? MemoryPhase::kForward : MemoryPhase::kBackward);
    }
  };
  if (is_half) {
    is_half_ = true;
    loss_scale_ = LossScale(plan_.loss_scale);
  }
  // Sums over micro-batches are kept in float32: added in bfloat16, small gradients would be lost.
  // Sums over the ranks in float16 could overflow.
  if (plan_.accumulation_steps > 1 || is_half) {
    options.gradient_type = at::kFloat;
  }
  stage.model = std::move(model.model);
  stage.sharded = std::move(model.parameters);
  options.counts_squares = true;
  if (!stage.sharded.empty()) {
    // What several ranks of the model hold counts once over all of them.
    options.share_of_squares = [sharded = stage.sharded](const std::string& name) {
      const auto found = sharded.find(name);
      return found == sharded.end() ? 1.0 : 1.0 / found->second.cut.copies;
    };
  }
  stage.engine = std::make_unique<DataParallel>(*groups_.shards, units, options);
  stage.model->around_unit =
      [engine = stage.engine.get(), inner = stage.model->around_unit](
          int64_t unit, const nn::Tensors& inputs, const nn::LanguageModel::UnitBody& body) {
        return engine->run_unit(static_cast<size_t>(unit), inputs, [&](const nn::Tensors& in) {
          return inner(unit, in, body);
        });
      };
  lend_place(stage, units);
  return stage;
}

void ParallelModel::lend_place(HeldStage& stage, const std::vector<ParameterUnit>& units) {
  if (!stage.model->part().head) {
    return;
  }
  nn::Head& head = *stage.model->head;
  const Tensor& vocabulary = head.weight.defined() ? head.weight : stage.model->tokens->weight;
  for (const ParameterUnit& unit : units) {
    for (const NamedParameter& p : unit.parameters) {
      if (p.tensor.is_same(vocabulary)) {
        head.place_of_gradient = [this, engine = stage.engine.get(), name = p.name] {
          return micro_batches_ == 1 ? engine->place_of_gradient(name) : Tensor();
        };
      }
    }
  }
}

PartsOfParameters ParallelModel::parts_of(const HeldStage& stage) {
  comm::Communicator& tensor = axes_.along(mesh::Axis::kTensor);
  if (tensor.size() == 1) {
    return {};
  }
  // The stages' models stay where they are.
  const nn::LanguageModel* model = stage.model.get();
  return {
      &tensor,
      [model, sharded = stage.sharded](
          const std::string& name, const std::vector<int64_t>& part) -> ShardedParameter {
        const auto found = sharded.find(name);
        ShardedParameter result =
            found == sharded.end() ? ShardedParameter{part, {}} : found->second;
        if (is_tied_copy(*model, name)) {
          result.cut.copies /= 2;  // the other one is on another stage
        }
        return result;
      }};
}

mesh::Cut ParallelModel::copy_of_whole(const HeldStage& stage, const std::string& parameter) const {
  mesh::Cut whole;
  whole.copies = axes_.mesh().tensor;
  whole.copy = axes_.coordinate().tensor;
  if (is_tied_copy(*stage.model, parameter)) {
    whole.copy += stage.model->part().head ? whole.copies : 0;
    whole.copies *= 2;
  }
  return whole;
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

MemoryByKind ParallelModel::held() const {
  MemoryByKind held;
  held.optimizer = optimizer_bytes_;
  for (const HeldStage& stage : stages_) {
    const DataParallel& engine = *stage.engine;
    held.parameters += engine.gathers().kept_bytes();
    held.gathered += engine.gathers().gathered_bytes();
    held.gradients += engine.gradient_bytes();
    held.buffers += engine.bytes_in_flight();
  }
  return held;
}

StepResult ParallelModel::forward_backward(
    std::span<const nn::ForwardInputs> micro_batches, const objective::Counts& step) {
  // The optimizer multiplies the gradients anyway, so the mean is left to it; float16 could not
  // hold the sum.
  const double scale = is_half_ ? loss_scale_.value() / step.divisor() : 1.0;
  return judge(accumulate(micro_batches, step, scale), step);
}

Tensor ParallelModel::accumulate(
    std::span<const nn::ForwardInputs> micro_batches, const objective::Counts& step, double scale) {
  memory_->look(MemoryPhase::kIdle);
  for (HeldStage& stage : stages_) {
    stage.engine->begin_step();
  }
  micro_batches_ = micro_batches.size();
  scale_ = scale;
  const std::vector<nn::ForwardInputs> own = shard_inputs(micro_batches, part_);
  Tensor sums = pipeline_->forward_backward(own, step, scale);
  comm::Pending summed = axes_.gradients().all_reduce(sums);
  for (HeldStage& stage : stages_) {
    stage.engine->finish();
  }
  summed.wait();
  axes_.along(mesh::Axis::kPipeline).all_reduce(sums).wait();
  sum_tied();
  return at::cat({sums, squared_gradients()});
}

StepResult ParallelModel::judge(const Tensor& sums, const objective::Counts& step) {
  gradient_factor_ = 1.0 / step.divisor() / scale_;
  const Tensor numbers = sums.to(at::kCPU);
  const auto* number = numbers.const_data_ptr<double>();
  StepResult result;
  const int64_t count = objective().sums();
  result.sums.assign(number, number + count);
  result.loss = number[0] / step.divisor();
  result.gradient_norm = std::sqrt(number[count]) * gradient_factor_;
  const bool is_finite = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  overflowed_ = result.overflowed = !is_finite && loss_scale_.can_fall();
  if (!is_finite && !overflowed_) {
    throw_not_finite(result.loss, result.gradient_norm);
  }
  gradient_scale_ =
      optim::clip_factor(result.gradient_norm, plan_.max_gradient_norm) * gradient_factor_;
  return result;
}

std::string ParallelModel::carrier_of_gradients() {
  const comm::Communicator& group = axes_.gradients();
  return group.size() == 1 ? ""
                           : group.process_group()->getBackend(device_.type())->getBackendName();
}

Tensor ParallelModel::squared_gradients() {
  Tensor squares;
  for (HeldStage& stage : stages_) {
    const Tensor own = stage.engine->squared_gradients().to(device_);
    squares = squares.defined() ? squares.add_(own) : own;
  }
  axes_.gradients().all_reduce(squares).wait();
  axes_.model().all_reduce(squares).wait();
  return squares;
}

void ParallelModel::throw_not_finite(double loss, double norm) {
  // Every rank is here, for all know the same norm; the bad element may lie in another's shard.
  std::optional<std::string> own;
  for (const HeldStage& stage : stages_) {
    own = own ? own : stage.engine->first_non_finite();
  }
  const auto names = comm::gather_strings(axes_.world(), own.value_or(""));
  const auto name = std::find_if(
      names.begin(), names.end(), [](const std::string& found) { return !found.empty(); });
  throw Error(
      ErrorKind::kNumeric,
      fmt::format(
          "the loss is {} and the gradient norm {}{}",
          loss,
          norm,
          name != names.end() ? fmt::format("; the first bad gradient is that of {}", *name) : ""),
      "lower training.learning_rate, lengthen training.warmup_steps, or clip with "
      "training.max_grad_norm; the checkpoints before this step are good");
}

void ParallelModel::optimizer_step(double learning_rate) {
  const at::NoGradGuard no_grad;
  if (overflowed_) {
    loss_scale_.overflowed();
    return;
  }
  loss_scale_.succeeded();
  optimizer_.step(learning_rate, gradient_scale_, [&] {
    optimizer_bytes_ = optimizer_.bytes_on(device_);
    memory_->look(MemoryPhase::kUpdate);
  });
  optimizer_bytes_ = optimizer_.bytes_on(device_);
  state_changed();
  memory_->look(MemoryPhase::kIdle);
}

Tensor ParallelModel::statistics(std::span<const nn::ForwardInputs> batches) {
  const std::vector<nn::ForwardInputs> own = shard_inputs(batches, part_);
  Tensor sums = pipeline_->statistics(own);
  axes_.along(mesh::Axis::kPipeline).all_reduce(sums).wait();
  return sums;
}

std::vector<Tensor> ParallelModel::row_scores(std::span<const nn::ForwardInputs> batches) {
  return pipeline_->row_scores(shard_inputs(batches, part_));
}

std::vector<Tensor> ParallelModel::class_scores(std::span<const nn::ForwardInputs> batches) {
  return pipeline_->class_scores(
      shard_inputs(batches, part_), stages_.front().model->config().head_rows());
}

void ParallelModel::visit_state(const std::function<void(const StateSlice&)>& visit) {
  const at::NoGradGuard no_grad;
  int64_t shard = 0;
  for (HeldStage& stage : stages_) {
    stage.engine->settle();
    visit_stage(stage, shard, visit);
  }
}

void ParallelModel::visit_stage(
    HeldStage& stage, int64_t& index, const std::function<void(const StateSlice&)>& visit) {
  const int ranks = axes_.gradients().size(), rank = axes_.gradients().rank();
  ShardFile* file = stage.engine->shard_file();
  const auto give = [&](const char* group, const optim::StatePiece& piece, bool replicated) {
    const mesh::Cut cut =
        piece.replicated ? copy_of_whole(stage, piece.parameter) : stage.cut_of(piece.parameter);
    // What several ranks hold, each writes a part of: all of them, or the replicas of a shard.
    const int64_t count = cut.copy > 0 ? 0 : piece.data.numel();
    const auto owned = replicated
                           ? share_of(count, rank, ranks)
                           : share_of(count, groups_.replica_rank(), groups_.replica_count());
    const std::string name =
        piece.name.empty() ? piece.parameter : piece.name + "." + piece.parameter;
    const bool in_file = std::string_view(group) == "optimizer"
                             ? plan_.offload_optimizer.device == OffloadDevice::kNvme
                             : file != nullptr;
    visit(
        {group,
         name,
         cut.is_whole() ? piece.shape : stage.shape_of(piece.parameter, piece.shape),
         cut,
         piece.begin,
         piece.data,
         owned.first,
         owned.second,
         in_file});
  };
  for (FlatUnit& flat : stage.engine->flats()) {
    const bool in_file = file != nullptr && file->holds(flat.shard);
    if (in_file) {
      file->start_load(flat.shard);
      file->finish_load(flat.shard);
    }
    for (const optim::Segment& segment : flat.shard_layout()) {
      const Tensor data = flat.shard.narrow(0, segment.offset, segment.count);
      give("model", {"", segment.parameter, segment.shape, segment.begin, data}, flat.replicated);
    }
    if (in_file) {  // it may have been written
      file->start_store(flat.shard);
      file->finish_store(flat.shard);
    }
    if (flat.trainable) {
      optimizer_.visit_state(index++, [&](const optim::StatePiece& piece) {
        give("optimizer", piece, flat.replicated || piece.replicated);
      });
    }
  }
}

void ParallelModel::visit_gradients(const std::function<void(const StateSlice&)>& visit) {
  for (HeldStage& stage : stages_) {
    for (const FlatUnit& flat : stage.engine->flats()) {
      for (const optim::Segment& segment : flat.shard_layout()) {
        if (flat.trainable) {
          visit(
              {"gradient",
               segment.parameter,
               stage.shape_of(segment.parameter, segment.shape),
               stage.cut_of(segment.parameter),
               segment.begin,
               flat.shard_gradient.narrow(0, segment.offset, segment.count) * gradient_factor_,
               0,
               0});
        }
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
