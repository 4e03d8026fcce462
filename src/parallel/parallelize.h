// From a model's description, a plan and a mesh to what the trainer drives.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "parallel/parallel_model.h"
#include "parallel/plan.h"
#include "parallel/ranks/axes.h"
#include "parallel/ranks/sequence_part.h"
#include "parallel/sharded_model.h"

namespace lockstep::parallel {

/// A model that is yet to be made, on each rank the part that it holds; and what for.
struct ModelSpec {
  /// Fills `values` (contiguous, of any shape) with the elements [begin, begin + values.numel()) of
  /// this rank's part of a parameter: from files, or at random by global element. Calls no
  /// collective.
  using Fill = std::function<void(
      const std::string& name,
      const ShardedParameter& parameter,
      int64_t begin,
      const Tensor& values)>;

  model::ModelConfig config;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::Device(c10::kCPU);
  Fill fill;
  /// Changes the model, on the Meta device, before any strategy does: puts products of another kind
  /// into linears, adds parameters (to LanguageModel::specs too). The same on every rank.
  std::function<void(nn::LanguageModel& model)> adapt = nullptr;
  /// Parameters that are not trained: regular expressions (model/freeze.h).
  std::vector<std::string> freeze = {};
  /// What it is trained for, and evaluated by.
  objective::ObjectivePointer objective = objective::cross_entropy();
};

/// Which positions of a sequence this rank holds under the plan.
SequencePart sequence_part(const Plan& plan, const Axes& axes);

/// This rank's part of the model under the strategies that cut it. No rank ever holds more than its
/// part. Every rank must call. Throws Error: kConfig where the plan does not fit the model,
/// kOutOfMemory, and what `fill` throws.
ShardedModel make_sharded_model(const ModelSpec& spec, const Plan& plan, Axes& axes);

/// The same under a pipeline too: a model for each stage that this rank holds, in their order.
std::vector<ShardedModel> make_sharded_stages(const ModelSpec& spec, const Plan& plan, Axes& axes);

/// The stages ready to be trained: the strategies are applied in one order, the pipeline's split
/// first, then tensor and sequence, then context, then recomputation, then data and ZeRO, then the
/// optimizer. No rank ever holds more than it keeps between steps. Every rank must
/// call; `axes` must outlive the result.
std::unique_ptr<ParallelModel> parallelize(const ModelSpec& spec, const Plan& plan, Axes& axes);

/// Fills each parameter with the family's initial values, as nn::initialize does: the same ones
/// under every plan.
ModelSpec::Fill fill_at_random(const model::ModelConfig& config, uint64_t seed);

}  // namespace lockstep::parallel
