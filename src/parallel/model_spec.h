// A model that is yet to be made.
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

/// Each rank makes the part that it holds.
struct ModelSpec {
  /// Fills `values` (contiguous, of any shape) with the elements [begin, begin + values.numel()) of
  /// this rank's part of a parameter: from files, or at random by global element. Of packed weights
  /// these are bytes (uint8), and the parameter's shape is that of the matrix, [out, in], where it
  /// is cut. Calls no collective.
  using Fill = std::function<void(
      const std::string& name,
      const ShardedParameter& parameter,
      int64_t begin,
      const Tensor& values)>;

  model::ModelConfig config;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::Device(c10::kCPU);
  Fill fill;
  /// What is trained beside the model's own weights, and in their place; null: these are.
  std::shared_ptr<const model::Adapters> adapters = nullptr;
  /// The linears whose weights are packed, beside which the adapters stand; null: none.
  std::shared_ptr<const nn::Packing> packing = nullptr;
  /// Which products are made in 8-bit floats; nothing: none.
  std::optional<model::Float8> float8 = std::nullopt;
  /// Changes the model, on the Meta device, before any strategy does: puts products of another kind
  /// into linears, adds parameters (to LanguageModel::specs too). The same on every rank.
  std::function<void(nn::LanguageModel& model)> adapt = nullptr;
  /// Parameters that are not trained: regular expressions (model/freeze.h).
  std::vector<std::string> freeze = {};
  /// What it is trained for, and evaluated by.
  objective::ObjectivePointer objective = objective::cross_entropy();
};

/// Fills each parameter with the family's initial values, as nn::initialize does: the same ones
/// under every plan.
ModelSpec::Fill fill_at_random(const model::ModelConfig& config, uint64_t seed);
/// The same of these parameters, by name.
ModelSpec::Fill fill_at_random(std::map<std::string, model::ParameterSpec> specs, uint64_t seed);

/// A whole packed matrix, by the name of the weight.
using PackedSource = std::function<ops::PackedMatrix(const std::string& name)>;
/// Fills the bytes of packed weights from `source`, a whole matrix at a time. One that is asked for
/// in a floating type is what its codes stand for, in the layout of the model's files. All else is
/// filled by `rest`.
ModelSpec::Fill fill_packed(
    const model::ModelConfig& config,
    const nn::Packing& packing,
    PackedSource source,
    ModelSpec::Fill rest);
/// What `fill` gives, in the type of each format, packed: the same under every plan, because it is
/// packed before it is cut.
PackedSource quantized(
    const model::ModelConfig& config, const nn::Packing& packing, ModelSpec::Fill fill);

}  // namespace lockstep::parallel
