#include "parallel/parallelize.h"

#include <map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/format.h"
#include "model/parameters.h"
#include "nn/initialize.h"
#include "parallel/context/context_parallel.h"
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
  if (!stage.model->config().tie_word_embeddings || part.embedding == part.head) {
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

ShardedModel make_stage(
    const ModelSpec& spec, const Plan& plan, Axes& axes, const nn::ModelPart& stage) {
  ShardedModel result;
  result.model = nn::make_model(spec.config, spec.dtype, at::kMeta, stage);
  result.parameters = apply_tensor_parallel(*result.model, axes, plan.sequence_sharding);
  const SequencePart part = sequence_part(plan, axes);
  apply_sequence_part(*result.model, part);
  apply_context_parallel(*result.model, axes, part, plan.context_attention);
  mark_tied_copy(result);
  result.model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    Tensor values = allocate(parameter, name, spec.device);
    const auto found = result.parameters.find(name);
    spec.fill(
        name,
        found == result.parameters.end() ? ShardedParameter{parameter.sizes().vec(), {}}
                                         : found->second,
        values);
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
  return make_stage(spec, plan, axes, {});
}

std::vector<ShardedModel> make_sharded_stages(const ModelSpec& spec, const Plan& plan, Axes& axes) {
  std::vector<ShardedModel> stages;
  for (const nn::ModelPart& part : parts_of_rank(
           spec.config,
           plan.pipeline,
           axes.coordinate().pipeline,
           axes.mesh().pipeline,
           plan.sequence_length)) {
    stages.push_back(make_stage(spec, plan, axes, part));
  }
  return stages;
}

std::unique_ptr<ParallelModel> parallelize(const ModelSpec& spec, const Plan& plan, Axes& axes) {
  return std::make_unique<ParallelModel>(
      make_sharded_stages(spec, plan, axes), plan, axes, sequence_part(plan, axes));
}

ModelSpec::Fill fill_at_random(const model::ModelConfig& config, uint64_t seed) {
  std::map<std::string, model::ParameterSpec> specs;
  for (model::ParameterSpec& parameter : model::parameters_of(config)) {
    std::string name = parameter.name;
    specs.emplace(std::move(name), std::move(parameter));
  }
  return [specs = std::move(specs), seed](
             const std::string& name, const ShardedParameter& parameter, const Tensor& values) {
    const Tensor flat = values.view({-1});
    mesh::visit_runs(
        parameter.cut,
        parameter.shape,
        0,
        flat.numel(),
        [&](int64_t local, int64_t whole, int64_t count) {
          nn::fill_initial(flat.narrow(0, local, count), specs.at(name), seed, whole);
        });
  };
}

}  // namespace lockstep::parallel
