// A rank's part of a model.
#pragma once

#include <memory>

#include "nn/language_model.h"
#include "parallel/data/flat_unit.h"
#include "parallel/ranks/sharded_parameter.h"

namespace lockstep::parallel {

struct ShardedModel {
  std::unique_ptr<nn::LanguageModel> model;
  ShardedParameters parameters;
  /// The values of what this rank holds, by name and range of the part; none: the model has them.
  ParameterSource source = nullptr;
};

}  // namespace lockstep::parallel
