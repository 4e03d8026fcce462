// Specification of a model before it is built.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/adapters.h"
#include "model/float8.h"
#include "model/model_config.h"
#include "nn/language_model.h"
#include "nn/packed.h"
#include "objective/objectives.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

using at::Tensor;

/// Each rank builds its own shard.
struct ModelSpec {
  /// Fills `values` (contiguous, of any shape) with elements [begin, begin + values.numel()) of
  /// this rank's shard of a parameter, from files or at random by global element. For packed
  /// weights these are bytes (uint8), and the parameter's shape is that of the matrix, [out, in],
  /// which is cut. Must call no collective.
  using Fill = std::function<void(
      const std::string& name,
      const ShardedParameter& parameter,
      int64_t begin,
      const Tensor& values)>;

  model::ModelConfig config;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::Device(c10::kCPU);
  Fill fill;
  /// Adapters to train instead of the model's own weights; null: none.
  std::shared_ptr<const model::Adapters> adapters = nullptr;
  /// Linears with packed (quantized) base weights; null: none.
  std::shared_ptr<const nn::Packing> packing = nullptr;
  /// Products computed in float8; nullopt: none.
  std::optional<model::Float8> float8 = std::nullopt;
  /// Modifies the model on the Meta device before any strategy: replaces linear kernels, adds
  /// parameters (also to LanguageModel::specs). The same on every rank.
  std::function<void(nn::LanguageModel& model)> adapt = nullptr;
  /// Regular expressions for the names of frozen parameters (model/freeze.h).
  std::vector<std::string> freeze = {};
  /// Training and evaluation objective.
  objective::ObjectivePointer objective = objective::cross_entropy();
};

/// Fills each parameter with the family's initial values, as nn::initialize does: the same under
/// every plan.
ModelSpec::Fill fill_at_random(const model::ModelConfig& config, uint64_t seed);
/// The same for these parameters, by name.
ModelSpec::Fill fill_at_random(std::map<std::string, model::ParameterSpec> specs, uint64_t seed);

/// Returns a whole packed matrix, given the name of the weight.
using PackedSource = std::function<ops::PackedMatrix(const std::string& name)>;
/// Fills the bytes of packed weights from `source`, one matrix at a time. If such a weight is
/// requested in a floating type, it is dequantized into the layout of the model's files. `rest`
/// fills everything else.
ModelSpec::Fill fill_packed(
    const model::ModelConfig& config,
    const nn::Packing& packing,
    PackedSource source,
    ModelSpec::Fill rest);
/// Quantizes the values of `fill` (in each format's type). The result is the same under every plan,
/// because values are quantized before they are sharded.
PackedSource quantized(
    const model::ModelConfig& config, const nn::Packing& packing, ModelSpec::Fill fill);

}  // namespace lockstep::parallel
