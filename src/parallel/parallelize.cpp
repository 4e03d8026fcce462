// Applies the parallelism strategies in order and creates the model.
#include "parallel/parallelize.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "model/freeze.h"
#include "nn/float8.h"
#include "nn/low_rank.h"
#include "parallel/context/context_parallel.h"
#include "parallel/context/sequence_slots.h"
#include "parallel/data/matrix_exchange.h"
#include "parallel/data/shards.h"
#include "parallel/data/zero.h"
#include "parallel/expert/expert_parallel.h"
#include "parallel/ranks/tied_copies.h"
#include "parallel/recompute/recompute.h"
#include "parallel/tensor/tensor_parallel.h"

namespace lockstep::parallel {
namespace {

/// Returns this rank's pipeline stages with their layers, in order, on the Meta device.
std::vector<ShardedModel> split_pipeline(
    const ModelSpec& spec, const Plan& plan, const ParallelGroups& axes) {
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

/// Validates against the whole model, so that all ranks report the same error.
void apply_adaptation(nn::LanguageModel& model, const ModelSpec& spec) {
  if (spec.packing != nullptr) {
    nn::pack_linears(model, *spec.packing);
  }
  if (spec.float8) {
    nn::round_linears(model, *spec.float8);
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

/// Reads the initial values of this rank's shard of a stage, by name and range.
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

using Rules = std::map<std::string, optim::UpdateRule>;

/// Returns the number of elements per block for Adam-mini: one block per head for queries and keys,
/// one per output for other weights.
Rules blocks_of(const nn::LanguageModel& model) {
  static const std::set<std::string> kByHead{
      "query", "key", "query_key_value", "cross_query", "cross_key"};
  Rules rules;
  for (const auto& [prefix, layer] : model.layers) {
    optim::UpdateRule& rule = rules[layer.weight().name];
    rule.block = kByHead.contains(layer.role) ? model.config().head_dim : 1;
    rule.block_by_columns = layer.in_first;
  }
  return rules;
}

/// Returns a function that maps a parameter name to its update rule.
std::function<optim::UpdateRule(const std::string&)> rules_of(
    const nn::LanguageModel& model, const Plan& plan) {
  std::map<std::string, optim::ParameterTraits> traits;
  std::vector<optim::ParameterTraits> all;
  for (const auto& [name, parameter] : model.specs) {
    all.push_back({name, parameter.decays, parameter.is_hidden_matrix(), parameter.unit});
    traits.emplace(name, all.back());
  }
  const optim::UpdateRules rules(plan.update_rules, plan.optimizer.optim == "muon", all);
  const auto blocks = plan.optimizer.optim == "adam_mini" ? blocks_of(model) : Rules{};
  return [rules, blocks, traits = std::move(traits)](const std::string& name) {
    optim::UpdateRule rule = rules.rule_of(traits.at(name));
    if (const auto found = blocks.find(name); found != blocks.end()) {
      rule.block = found->second.block;
      rule.block_by_columns = found->second.block_by_columns;
    }
    return rule;
  };
}

/// State shared by all trained stages of a rank.
struct Training {
  Training(const Plan& plan, ParallelGroups& axes)
      : groups(make_shard_groups(axes, plan.zero_stage > 0 ? plan.shard_ranks : 0)),
        experts(make_expert_groups(axes, plan.expert_ranks, plan.expert_halves)),
        optimizer(optim::make_optimizer(plan.optimizer), plan.offload_optimizer) {}
  ShardGroups groups;
  ExpertGroups experts;
  OffloadedOptimizer optimizer;
};

/// Returns the options for storing and gathering parameter values.
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
  options.source = stage.source;
  options.replicas = groups.replicas;
  return options;
}

DataParallelOptions zero_options(
    ShardedModel& stage, const Plan& plan, const ShardGroups& groups, const Training& training) {
  DataParallelOptions options = gathering_options(stage, plan, groups);
  options.find_unused_parameters = plan.find_unused_parameters;
  options.alignment = training.optimizer.optimizer().alignment();
  options.rule_of = rules_of(*stage.model, plan);
  options.reduce_type = plan.reduce_type;
  // Gradients are accumulated over micro-batches in float32, since bfloat16 would lose small
  // gradients. In float16, sums over ranks could overflow.
  if ((plan.accumulation_steps > 1 && !stage.has_any(at::kDouble)) || stage.is_half()) {
    options.gradient_type = at::kFloat;
  }
  return options;
}

/// Describes a stage's parameters as shards over the tensor ranks. The result is valid as long as
/// the stage.
PartsOfParameters parts_of(const ShardedModel& stage, ParallelGroups& axes) {
  comm::Communicator& tensor = axes.along(mesh::Axis::kTensor);
  if (tensor.size() == 1) {
    return {};
  }
  return {&tensor, [&stage](const std::string& name, const std::vector<int64_t>& part) {
            ShardedParameter result{stage.shape_of(name, part), stage.cut_of(name)};
            if (is_tied_copy(*stage.model, name)) {
              result.cut.copies /= 2;  // the other half of the copies is on another stage
            }
            return result;
          }};
}

// These two functions apply the strategies in the order documented in parallelize.h.

/// Steps 2 to 6: replaces a stage by this rank's shard, without allocating memory.
void cut(
    ShardedModel& stage,
    const ModelSpec& spec,
    const Plan& plan,
    ParallelGroups& axes,
    const ExpertGroups& experts) {
  nn::LanguageModel& model = *stage.model;
  const SequencePart part = sequence_part(plan, axes);
  apply_adaptation(model, spec);
  stage.parameters = apply_tensor_parallel(model, axes, plan.sequence_sharding);
  apply_expert_parallel(model, experts);
  apply_sequence_part(model, part);
  apply_context_parallel(model, axes, part, plan.context_attention);
  count_tied_copies(model, stage.parameters);
  stage.source = source_of(spec, stage);
}

/// Step 9: creates an engine for the parameters and, if fewer ranks hold each expert, a second
/// engine for expert parameters. stage.groups must be set. If experts are distributed, each expert
/// shard is held by one rank.
void make_engines(
    ShardedModel& stage,
    const ExpertGroups& experts,
    const std::function<DataParallelOptions(const ShardGroups&)>& options) {
  nn::LanguageModel& model = *stage.model;
  std::set<std::string> apart;
  if (experts.are_spread()) {
    apart = expert_parameters(model);
  }
  const auto is_apart = [&](const std::string& name) { return apart.count(name) > 0; };
  if (!apart.empty()) {
    stage.expert_groups = {experts.holders, nullptr, experts.holders};
    stage.expert_engine = apply_zero(
        model, stage.parameters, *experts.holders, options(stage.expert_groups), is_apart);
  }
  stage.engine = apply_zero(
      model, stage.parameters, *stage.groups.shards, options(stage.groups), std::not_fn(is_apart));
  stage.source = nullptr;
}

/// Steps 7 to 9 for a stage that is trained; also adds its shards to the optimizer.
void prepare(ShardedModel& stage, const Plan& plan, ParallelGroups& axes, Training& training) {
  nn::LanguageModel& model = *stage.model;
  stage.groups = training.groups;
  stage.deferred = apply_deferral(model, plan.pipeline, axes.mesh().pipeline);
  apply_recompute(model, plan.recompute, stage.deferred);
  const auto options = [&](const ShardGroups& groups) {
    return zero_options(stage, plan, groups, training);
  };
  make_engines(stage, training.experts, options);
  training.optimizer.optimizer().set_change_matrices(
      [exchange = std::make_shared<MatrixExchange>(axes.world(), stage.device())](
          std::span<const optim::MatrixPiece> pieces, const optim::ChangeMatrix& change) {
        (*exchange)(pieces, change);
      });
  for (const ShardedModel::Engine& each : stage.engines()) {
    add_shards(*each.engine, *each.groups->shards, training.optimizer, parts_of(stage, axes));
  }
}

/// Step 9 for a stage that is not trained.
void share_values(
    ShardedModel& stage,
    const ModelSpec& spec,
    const Plan& plan,
    ParallelGroups& axes,
    const ExpertGroups& experts) {
  stage.model->visit_parameters(
      [](const std::string&, Tensor& parameter) { parameter.set_requires_grad(false); });
  stage.leave_values_to_zero(spec.device);
  stage.groups = make_shard_groups(axes, plan.shard_ranks);
  make_engines(stage, experts, [&](const ShardGroups& groups) {
    return gathering_options(stage, plan, groups);
  });
}

}  // namespace

std::unique_ptr<ParallelModel> parallelize(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes) {
  check_plan(plan, axes.mesh());
  Training training(plan, axes);
  std::vector<ShardedModel> stages = split_pipeline(spec, plan, axes);
  for (ShardedModel& stage : stages) {
    cut(stage, spec, plan, axes, training.experts);
    stage.leave_values_to_zero(spec.device);
    prepare(stage, plan, axes, training);
  }
  return std::make_unique<ParallelModel>(
      std::move(stages), std::move(training.optimizer), plan, axes, spec.objective);
}

std::unique_ptr<ParallelModel> parallelize(
    std::unique_ptr<nn::LanguageModel> model,
    const Plan& plan,
    ParallelGroups& axes,
    objective::ObjectivePointer objective) {
  check_plan(plan, axes.mesh());
  if (axes.mesh().data != axes.mesh().ranks() || plan.expert_ranks > 1) {
    throw Error(
        ErrorKind::kConfig,
        "a model with allocated values supports data parallelism only, but the plan has other axes",
        "pass a ModelSpec to parallelize(), so that each rank creates its shard");
  }
  Training training(plan, axes);
  std::vector<ShardedModel> stages;
  stages.push_back({std::move(model)});
  prepare(stages.front(), plan, axes, training);
  return std::make_unique<ParallelModel>(
      std::move(stages), std::move(training.optimizer), plan, axes, std::move(objective));
}

std::unique_ptr<EvaluationModel> evaluation_model(
    const ModelSpec& spec, const Plan& plan, ParallelGroups& axes) {
  const ExpertGroups experts = make_expert_groups(axes, plan.expert_ranks, plan.expert_halves);
  std::vector<ShardedModel> stages = split_pipeline(spec, plan, axes);
  for (ShardedModel& stage : stages) {
    cut(stage, spec, plan, axes, experts);
    if (plan.zero_stage == 3) {
      share_values(stage, spec, plan, axes, experts);
    } else {
      stage.make_values(spec.device);
    }
  }
  return std::make_unique<EvaluationModel>(std::move(stages), plan, axes, spec.objective);
}

ShardedModel make_sharded_model(const ModelSpec& spec, const Plan& plan, ParallelGroups& axes) {
  ShardedModel whole{nn::make_model(spec.config, spec.dtype, at::kMeta)};
  cut(whole, spec, plan, axes, make_expert_groups(axes, plan.expert_ranks, plan.expert_halves));
  whole.make_values(spec.device);
  return whole;
}

}  // namespace lockstep::parallel
