#include "parallel/parallelize.h"

#include <map>
#include <set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "model/freeze.h"
#include "model/parameters.h"
#include "nn/initialize.h"
#include "parallel/context/context_parallel.h"
#include "parallel/context/sequence_slots.h"
#include "parallel/tensor/tensor_parallel.h"

namespace lockstep::parallel {
namespace {

Tensor allocate(const Tensor& like, const std::string& name, c10::Device device) {
  try {
    return at::empty(like.sizes(), like.options().device(device).requires_grad(false));
  } catch (const c10::Error& error) {
    throw Error(
        ErrorKind::kOutOfMemory,
        fmt::format(
            "cannot allocate {} ({}) on {}: {}",
            name,
            fmt::join(like.sizes(), "x"),
            device.str(),
            error.what_without_backtrace()),
        "use a smaller model or type, or more ranks with parallel.tensor");
  }
}

/// The first stage's embedding and the last one's tied head are copies of one parameter.
void mark_tied_copy(ShardedModel& stage) {
  const nn::ModelPart& part = stage.model->part();
  if (!stage.model->config().ties_head() || part.embedding == part.head) {
    return;
  }
  const std::string tied = model::embedding_name(stage.model->config());
  stage.model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    if (name == tied) {
      mesh::Cut& cut =
          stage.parameters.try_emplace(name, ShardedParameter{parameter.sizes().vec(), {}})
              .first->second.cut;
      cut.copy += part.head ? cut.copies : 0;
      cut.copies *= 2;
    }
  });
}

/// Of a part as of the whole model: every rank finds the same mistakes.
void apply_freeze(nn::LanguageModel& model, const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const auto& [name, spec] : model.specs) {
    names.push_back(name);
  }
  const std::set<std::string> frozen = model::frozen_parameters(names, patterns);
  model.visit_parameters([&](const std::string& name, Tensor& parameter) {
    if (frozen.count(name) > 0) {
      parameter.set_requires_grad(false);
    }
  });
}

/// When the values of a model's part are made: with it, or as they are asked for.
enum class Values { kNow, kOnRequest };

/// The part's values by name and range.
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

ShardedModel make_stage(
    const ModelSpec& spec,
    const Plan& plan,
    Axes& axes,
    const nn::ModelPart& stage,
    Values values_are_made) {
  ShardedModel result;
  result.model = nn::make_model(spec.config, spec.dtype, at::kMeta, stage);
  if (spec.adapt) {
    spec.adapt(*result.model);
  }
  apply_freeze(*result.model, spec.freeze);
  result.parameters = apply_tensor_parallel(*result.model, axes, plan.sequence_sharding);
  const SequencePart part = sequence_part(plan, axes);
  apply_sequence_part(*result.model, part);
  apply_context_parallel(*result.model, axes, part, plan.context_attention);
  mark_tied_copy(result);
  result.source = source_of(spec, result);
  result.model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    if (values_are_made == Values::kOnRequest) {
      parameter = unallocated_parameter(
          parameter.sizes(), parameter.options().device(spec.device), parameter.requires_grad());
      return;
    }
    Tensor values = allocate(parameter, name, spec.device);
    result.source(name, 0, values);
    parameter = values.set_requires_grad(parameter.requires_grad());
  });
  return result;
}

}  // namespace

SequencePart sequence_part(const Plan& plan, const Axes& axes) {
  SequencePart part;
  part.context_rank = axes.coordinate().context;
  part.context_ranks = axes.mesh().context;
  if (plan.sequence_sharding == SequenceSharding::kShards) {
    part.tensor_rank = axes.coordinate().tensor;
    part.tensor_ranks = axes.mesh().tensor;
  }
  return part;
}

ShardedModel make_sharded_model(const ModelSpec& spec, const Plan& plan, Axes& axes) {
  return make_stage(spec, plan, axes, {}, Values::kNow);
}

namespace {

std::vector<ShardedModel> make_stages(
    const ModelSpec& spec, const Plan& plan, Axes& axes, Values values_are_made) {
  std::vector<ShardedModel> stages;
  for (const nn::ModelPart& part : parts_of_rank(
           spec.config,
           plan.pipeline,
           axes.coordinate().pipeline,
           axes.mesh().pipeline,
           plan.sequence_length)) {
    stages.push_back(make_stage(spec, plan, axes, part, values_are_made));
  }
  return stages;
}

}  // namespace

std::vector<ShardedModel> make_sharded_stages(const ModelSpec& spec, const Plan& plan, Axes& axes) {
  return make_stages(spec, plan, axes, Values::kNow);
}

std::unique_ptr<ParallelModel> parallelize(const ModelSpec& spec, const Plan& plan, Axes& axes) {
  return std::make_unique<ParallelModel>(
      make_stages(spec, plan, axes, Values::kOnRequest),
      plan,
      axes,
      sequence_part(plan, axes),
      spec.objective);
}

ModelSpec::Fill fill_at_random(const model::ModelConfig& config, uint64_t seed) {
  std::map<std::string, model::ParameterSpec> specs;
  for (model::ParameterSpec& parameter : model::parameters_of(config)) {
    std::string name = parameter.name;
    specs.emplace(std::move(name), std::move(parameter));
  }
  return [specs = std::move(specs), seed](
             const std::string& name,
             const ShardedParameter& parameter,
             int64_t begin,
             const Tensor& values) {
    const Tensor flat = values.view({-1});
    mesh::visit_runs(
        parameter.cut,
        parameter.shape,
        begin,
        begin + flat.numel(),
        [&](int64_t local, int64_t whole, int64_t count) {
          nn::fill_initial(flat.narrow(0, local - begin, count), specs.at(name), seed, whole);
        });
  };
}

}  // namespace lockstep::parallel
