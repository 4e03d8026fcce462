// A rank's part of a model: one stage of the pipeline, and what the strategies made of it.
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
  /// The values of what this rank holds, by name and range of the part; none: the model has them.
  ParameterSource source = nullptr;
  std::shared_ptr<DeferredQueue> deferred = nullptr;  // null: no weight gradients are put off
  std::unique_ptr<DataParallel> engine = nullptr;     // null: it is not trained
  /// Of the parameters of experts, where these are spread over ranks; null: `engine` has them.
  std::unique_ptr<DataParallel> expert_engine = nullptr;
  ShardGroups groups = {}, expert_groups = {};  // of the engines

  struct Engine {
    DataParallel* engine;
    const ShardGroups* groups;
  };
  /// Those that there are, in the order in which the optimizer has their shards.
  std::vector<Engine> engines() const;

  /// The part of a parameter that this rank holds.
  const mesh::Cut& cut_of(const std::string& name) const;
  /// Of the whole tensor of which this rank holds a part of the shape `part`.
  std::vector<int64_t> shape_of(const std::string& name, const std::vector<int64_t>& part) const;
  c10::Device device() const;
  /// Whether a parameter is float16.
  bool is_half() const { return has_any(at::kHalf); }
  /// Or of another type.
  bool has_any(at::ScalarType type) const;

  /// Gives parameters without memory their memory on a device, and their values from the source.
  /// Error (out of memory) that names the one that did not fit.
  void make_values(c10::Device device);
  /// Says of parameters without memory on which device ZeRO is to give them theirs.
  void leave_values_to_zero(c10::Device device);
};

/// What this rank can run with a cache of keys and values, alone or with its tensor ranks: the
/// model, where it has all layers, all positions of a row, and their values at any time. Else null.
const nn::LanguageModel* cacheable_model(
    const std::vector<ShardedModel>& stages, const Plan& plan, const mesh::Mesh& mesh);

}  // namespace lockstep::parallel
