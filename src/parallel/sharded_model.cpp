// Engines, parameter slices and initial values of a rank's pipeline stage.
#include "parallel/sharded_model.h"

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "base/format.h"
#include "model/rope.h"
#include "parallel/offload/storage.h"

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

}  // namespace

std::vector<ShardedModel::Engine> ShardedModel::engines() const {
  std::vector<Engine> result;
  if (engine != nullptr) {
    result.push_back({engine.get(), &groups});
  }
  if (expert_engine != nullptr) {
    result.push_back({expert_engine.get(), &expert_groups});
  }
  return result;
}

const mesh::Cut& ShardedModel::cut_of(const std::string& name) const {
  static const mesh::Cut whole;
  const auto found = parameters.find(name);
  return found == parameters.end() ? whole : found->second.cut;
}

std::vector<int64_t> ShardedModel::shape_of(
    const std::string& name, const std::vector<int64_t>& part) const {
  const auto found = parameters.find(name);
  return found == parameters.end() ? part : found->second.shape;
}

c10::Device ShardedModel::device() const {
  c10::Device device(c10::kCPU);
  model->visit_parameters(
      [&](const std::string& /*name*/, Tensor& parameter) { device = parameter.device(); });
  return device;
}

bool ShardedModel::has_any(at::ScalarType type) const {
  bool has_any = false;
  model->visit_parameters([&](const std::string& /*name*/, Tensor& parameter) {
    has_any = has_any || parameter.scalar_type() == type;
  });
  return has_any;
}

void ShardedModel::make_values(c10::Device device) {
  model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    Tensor values = allocate(parameter, name, device);
    source(name, 0, values);
    parameter = values.set_requires_grad(parameter.requires_grad());
  });
}

void ShardedModel::leave_values_to_zero(c10::Device device) {
  model->visit_parameters([&](const std::string& /*name*/, Tensor& parameter) {
    parameter = unallocated_parameter(
        parameter.sizes(), parameter.options().device(device), parameter.requires_grad());
  });
}

const nn::LanguageModel* cacheable_model(
    const std::vector<ShardedModel>& stages, const Plan& plan, const mesh::Mesh& mesh) {
  constexpr int kShardsOfParameters = 3;
  const model::ModelConfig& config = stages.front().model->config();
  const bool has_all = mesh.pipeline == 1 && mesh.context == 1 && plan.expert_ranks == 1 &&
                       plan.zero_stage < kShardsOfParameters &&
                       plan.sequence_sharding == SequenceSharding::kNone;
  const bool reads_on = !config.bidirectional && !config.is_encoder_decoder() &&
                        !model::rope_depends_on_length(config);
  return has_all && reads_on ? stages.front().model.get() : nullptr;
}

}  // namespace lockstep::parallel
