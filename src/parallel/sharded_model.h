// A rank's shard of a model: one pipeline stage with all strategies applied.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/language_model.h"
#include "parallel/autograd/deferred.h"
#include "parallel/data/data_parallel.h"
#include "parallel/data/shard_groups.h"
#include "parallel/plan.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

struct ShardedModel {
  std::unique_ptr<nn::LanguageModel> model;
  ShardedParameters parameters = {};
  /// Provides the initial values of this rank's shards, by name and range; null: the model already
  /// has values.
  ParameterSource source = nullptr;
  std::shared_ptr<DeferredQueue> deferred = nullptr;  // null: weight gradients are not deferred
  std::unique_ptr<DataParallel> engine = nullptr;     // null: the stage is not trained
  /// Engine of the expert parameters if experts are distributed; null: `engine` holds them.
  std::unique_ptr<DataParallel> expert_engine = nullptr;
  ShardGroups groups = {}, expert_groups = {};  // process groups of the two engines

  struct Engine {
    DataParallel* engine;
    const ShardGroups* groups;
  };
  /// Returns all engines, in the order in which their shards were added to the optimizer.
  std::vector<Engine> engines() const;

  /// Returns this rank's slice of a parameter.
  const mesh::Cut& cut_of(const std::string& name) const;
  /// Returns the shape of the whole tensor, given the shape `part` of this rank's shard of it.
  std::vector<int64_t> shape_of(const std::string& name, const std::vector<int64_t>& part) const;
  c10::Device device() const;
  /// Returns true if any parameter is float16.
  bool is_half() const { return has_any(at::kHalf); }
  /// Returns true if any parameter has this type.
  bool has_any(at::ScalarType type) const;

  /// Allocates the parameters on a device and fills them from `source`. Throws Error (out of
  /// memory) that names the parameter that could not be allocated.
  void make_values(c10::Device device);
  /// Sets the device on which ZeRO allocates the parameters later.
  void leave_values_to_zero(c10::Device device);
};

/// Returns the model if this rank, alone or together with its tensor ranks, can run it with a
/// key-value cache: the rank must have all layers, all positions of a row, and permanently
/// allocated values. Returns null otherwise.
const nn::LanguageModel* cacheable_model(
    const std::vector<ShardedModel>& stages, const Plan& plan, const mesh::Mesh& mesh);

}  // namespace lockstep::parallel
