#include "parallel/parallelize.h"

#include <set>
#include <utility>

#include "base/error.h"
#include "model/freeze.h"
#include "nn/low_rank.h"
#include "parallel/context/context_parallel.h"
#include "parallel/context/sequence_slots.h"
#include "parallel/data/shards.h"
#include "parallel/data/zero.h"
#include "parallel/ranks/tied_copies.h"
#include "parallel/recompute/recompute.h"
#include "parallel/tensor/tensor_parallel.h"

namespace lockstep::parallel {
namespace {

/// The layers of this rank's stages, in order, on the Meta device.
std::vector<ShardedModel> split_pipeline(
    const ModelSpec& spec, const Plan& plan, const Axes& axes) {
  std::vector<ShardedModel> stages;
  for (const nn::ModelPart& part : parts_of_rank(
           spec.config,
           plan.pipeline,
           axes.coordinate().pipeline,
           axes.mesh().pipeline,
           plan.sequence_length)) {
    stages.push_back({nn::make_model(spec.config, spec.dtype, at::kMeta, part)});
  }
  return stages;
}

/// Of a part as of the whole model: every rank finds the same mistakes.
void apply_adaptation(nn::LanguageModel& model, const ModelSpec& spec) {
  if (spec.packing != nullptr) {
    nn::pack_linears(model, *spec.packing);
  }
  if (spec.adapters != nullptr) {
    nn::add_adapters(model, *spec.adapters);
  }
  if (spec.adapt) {
    spec.adapt(model);
  }
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model.specs) {
    names.push_back(name);
  }
  const std::set<std::string> frozen = model::frozen_parameters(names, spec.freeze);
  model.visit_parameters([&](const std::string& name, Tensor& parameter) {
    if (frozen.count(name) > 0) {
      parameter.set_requires_grad(false);
    }
  });
}

/// The values of what this rank holds of a stage, by name and range.
ParameterSource source_of(const ModelSpec& spec, const ShardedModel& stage) {
  ShardedParameters parameters = stage.parameters;
  stage.model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    parameters.try_emplace(name, ShardedParameter{parameter.sizes().vec(), {}});
  });
  return [fill = spec.fill, parameters = std::move(parameters)](
             const std::string& name, int64_t begin, const Tensor& out) {
    fill(name, parameters.at(name), begin, out);
  };
}

/// What the trained stages of a rank share.
struct Training {
  Training(const Plan& plan, Axes& axes)
      : groups(make_shard_groups(axes, plan.zero_stage > 0 ? plan.shard_ranks : 0)),
        optimizer(optim::make_optimizer(plan.optimizer), plan.offload_optimizer) {}
  ShardGroups groups;
  OffloadedOptimizer optimizer;
};

/// How values are kept and gathered.
DataParallelOptions gathering_options(
    ShardedModel& stage, const Plan& plan, const ShardGroups& groups) {
  DataParallelOptions options;
  options.zero_stage = plan.zero_stage;
  options.prefetch_units = plan.prefetch_units;
  options.prefetch_elements = plan.prefetch_elements;
  options.persistence_threshold = plan.persistence_threshold;
  options.bucket_megabytes = plan.bucket_megabytes;
  options.offload_parameters = plan.offload_parameters;
  options.parameter_folder = plan.parameter_folder;
  options.source = std::exchange(stage.source, nullptr);
  options.replicas = groups.replicas;
  return options;
}

DataParallelOptions zero_options(ShardedModel& stage, const Plan& plan, const Training& training) {
  DataParallelOptions options = gathering_options(stage, plan, training.groups);
  options.find_unused_parameters = plan.find_unused_parameters;
  options.alignment = training.optimizer.optimizer().alignment();
  options.reduce_type = plan.reduce_type;
  // Sums over micro-batches are kept in float32: added in bfloat16, small gradients would be lost.
  // Sums over the ranks in float16 could overflow.
  if (plan.accumulation_steps > 1 || stage.is_half()) {
    options.gradient_type = at::kFloat;
  }
  return options;
}

/// What a stage's parameters are of the model's, over the tensor ranks. For as long as the stage.
PartsOfParameters parts_of(const ShardedModel& stage, Axes& axes) {
  comm::Communicator& tensor = axes.along(mesh::Axis::kTensor);
  if (tensor.size() == 1) {
    return {};
  }
  return {&tensor, [&stage](const std::string& name, const std::vector<int64_t>& part) {
            ShardedParameter result{stage.shape_of(name, part), stage.cut_of(name)};
            if (is_tied_copy(*stage.model, name)) {
              result.cut.copies /= 2;  // the other one is on another stage
            }
            return result;
          }};
}

// The order (parallelize.h) is that of these two functions.

/// Steps 2 to 5: this rank's part of a stage, still without memory.
void cut(ShardedModel& stage, const ModelSpec& spec, const Plan& plan, Axes& axes) {
  nn::LanguageModel& model = *stage.model;
  const SequencePart part = sequence_part(plan, axes);
  apply_adaptation(model, spec);
  stage.parameters = apply_tensor_parallel(model, axes, plan.sequence_sharding);
  apply_sequence_part(model, part);
  apply_context_parallel(model, axes, part, plan.context_attention);
  count_tied_copies(model, stage.parameters);
  stage.source = source_of(spec, stage);
}

/// Steps 6 to 8, and the optimizer's shards: a stage that is trained.
void prepare(ShardedModel& stage, const Plan& plan, Axes& axes, Training& training) {
  nn::LanguageModel& model = *stage.model;
  comm::Communicator& sharing = *training.groups.shards;
  stage.deferred = apply_deferral(model, plan.pipeline, axes.mesh().pipeline);
  apply_recompute(model, plan.recompute, stage.deferred);
  stage.engine = apply_zero(model, stage.parameters, sharing, zero_options(stage, plan, training));
  add_shards(*stage.engine, sharing, training.optimizer, parts_of(stage, axes));
}

/// Step 8 of a stage that is not trained.
void share_values(ShardedModel& stage, const ModelSpec& spec, const Plan& plan, Axes& axes) {
  stage.model->visit_parameters(
      [](const std::string&, Tensor& parameter) { parameter.set_requires_grad(false); });
  stage.leave_values_to_zero(spec.device);
  const ShardGroups groups = make_shard_groups(axes, plan.shard_ranks);
  stage.engine = apply_zero(
      *stage.model, stage.parameters, *groups.shards, gathering_options(stage, plan, groups));
}

}  // namespace

std::unique_ptr<ParallelModel> parallelize(const ModelSpec& spec, const Plan& plan, Axes& axes) {
  check_plan(plan, axes.mesh());
  Training training(plan, axes);
  std::vector<ShardedModel> stages = split_pipeline(spec, plan, axes);
  for (ShardedModel& stage : stages) {
    cut(stage, spec, plan, axes);
    stage.leave_values_to_zero(spec.device);
    prepare(stage, plan, axes, training);
  }
  return std::make_unique<ParallelModel>(
      std::move(stages),
      std::move(training.optimizer),
      plan,
      axes,
      training.groups,
      spec.objective);
}

std::unique_ptr<ParallelModel> parallelize(
    std::unique_ptr<nn::LanguageModel> model,
    const Plan& plan,
    Axes& axes,
    objective::ObjectivePointer objective) {
  check_plan(plan, axes.mesh());
  if (axes.mesh().data != axes.mesh().ranks()) {
    throw Error(
        ErrorKind::kConfig,
        "a model that holds all its values is trained under data parallelism alone, and the mesh "
        "has other axes",
        "give parallelize() a ModelSpec: each rank then makes its part");
  }
  Training training(plan, axes);
  std::vector<ShardedModel> stages;
  stages.push_back({std::move(model)});
  prepare(stages.front(), plan, axes, training);
  return std::make_unique<ParallelModel>(
      std::move(stages),
      std::move(training.optimizer),
      plan,
      axes,
      training.groups,
      std::move(objective));
}

std::unique_ptr<EvaluationModel> evaluation_model(
    const ModelSpec& spec, const Plan& plan, Axes& axes) {
  std::vector<ShardedModel> stages = split_pipeline(spec, plan, axes);
  for (ShardedModel& stage : stages) {
    cut(stage, spec, plan, axes);
    if (plan.zero_stage == 3) {
      share_values(stage, spec, plan, axes);
    } else {
      stage.make_values(spec.device);
    }
  }
  return std::make_unique<EvaluationModel>(std::move(stages), plan, axes, spec.objective);
}

ShardedModel make_sharded_model(const ModelSpec& spec, const Plan& plan, Axes& axes) {
  ShardedModel whole{nn::make_model(spec.config, spec.dtype, at::kMeta)};
  cut(whole, spec, plan, axes);
  whole.make_values(spec.device);
  return whole;
}

}  // namespace lockstep::parallel
