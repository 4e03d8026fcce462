// From the description of a unit to its layers.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/description.h"
#include "nn/slots.h"

namespace lockstep::nn {

/// Makes the layers of a unit as the model's description has them, and names their slots.
class UnitLayers {
 public:
  UnitLayers(const model::ModelConfig& config, std::vector<model::LayerSpec> specs, int64_t layer);
  /// Of a block.
  UnitLayers(const model::ModelConfig& config, int64_t layer);

  /// Null: the description has none of this role.
  const model::LayerSpec* find(std::string_view role) const;
  std::shared_ptr<Linear> linear(std::string_view role) const;
  std::shared_ptr<Norm> norm(std::string_view role) const;
  /// Of a place without parameters too.
  SlotName name(std::string_view role) const;
  /// Of a layer of an expert.
  SlotName name(std::string_view role, int64_t expert) const;

 private:
  std::vector<model::LayerSpec> specs_;
  int64_t layer_;
  double norm_eps_;
};

}  // namespace lockstep::nn
