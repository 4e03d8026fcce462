// Specification from which parallelize() builds a model.
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

/// Every rank builds its own shard from the same specification.
struct ModelSpec {
  /// Fills `values` (contiguous, of any shape) with the elements [begin, begin + values.numel()) of
  /// this rank's shard of a parameter. The values come from files or from a random generator that
  /// is indexed by global element. Packed weights are filled as bytes (uint8); the sharded shape is
  /// then that of the matrix, [out, in]. Must not call a collective.
  using Fill = std::function<void(
      const std::string& name,
      const ShardedParameter& parameter,
      int64_t begin,
      const Tensor& values)>;

  model::ModelConfig config;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::Device(c10::kCPU);
  Fill fill;
  /// Adapters to train instead of the model's own weights; null: no adapters.
  std::shared_ptr<const model::Adapters> adapters = nullptr;
  /// Formats of linear layers with packed (quantized) base weights; null: no packed weights.
  std::shared_ptr<const nn::Packing> packing = nullptr;
  /// Float8 settings of matrix products; nullopt: no float8.
  std::optional<model::Float8> float8 = std::nullopt;
  /// Modifies the model on the Meta device before any parallelism strategy is applied: may replace
  /// linear kernels and add parameters (which must also be added to LanguageModel::specs). Must
  /// have the same effect on every rank.
  std::function<void(nn::LanguageModel& model)> adapt = nullptr;
  /// Parameters whose names match any of these regular expressions are frozen (model/freeze.h).
  std::vector<std::string> freeze = {};
  /// Objective for training and evaluation.
  objective::ObjectivePointer objective = objective::cross_entropy();
};

/// Fills each parameter with the initial values of the model family, as nn::initialize does. The
/// values do not depend on the plan.
ModelSpec::Fill fill_at_random(const model::ModelConfig& config, uint64_t seed);
/// Overload for the given parameters, by name.
ModelSpec::Fill fill_at_random(std::map<std::string, model::ParameterSpec> specs, uint64_t seed);

/// Returns a whole packed matrix by the name of its weight.
using PackedSource = std::function<ops::PackedMatrix(const std::string& name)>;
/// Fills packed weights with bytes from `source`, one matrix at a time. A packed weight that is
/// requested in a floating-point type is dequantized into the layout of the model's files. All
/// other parameters are filled by `rest`.
ModelSpec::Fill fill_packed(
    const model::ModelConfig& config,
    const nn::Packing& packing,
    PackedSource source,
    ModelSpec::Fill rest);
/// Returns a source that quantizes the values of `fill` to each layer's format. Values are
/// quantized before they are sharded, so the result does not depend on the plan.
PackedSource quantized(
    const model::ModelConfig& config, const nn::Packing& packing, ModelSpec::Fill fill);

}  // namespace lockstep::parallel
