// Creates the layers of a unit from its description.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/description.h"
#include "nn/slots.h"

namespace lockstep::nn {

/// Creates the layers of a unit from the model's description and names their slots.
class UnitLayers {
 public:
  UnitLayers(const model::ModelConfig& config, std::vector<model::LayerSpec> specs, int64_t layer);
  /// Constructor for a block.
  UnitLayers(const model::ModelConfig& config, int64_t layer);

  /// Returns null if the description has no layer with this role.
  const model::LayerSpec* find(std::string_view role) const;
  std::shared_ptr<Linear> linear(std::string_view role) const;
  std::shared_ptr<Norm> norm(std::string_view role) const;
  /// Returns the name of a slot, including slots without parameters.
  SlotName name(std::string_view role) const;
  /// Returns the slot name of a layer of an expert.
  SlotName name(std::string_view role, int64_t expert) const;

 private:
  std::vector<model::LayerSpec> specs_;
  int64_t layer_;
  double norm_eps_;
};

}  // namespace lockstep::nn
