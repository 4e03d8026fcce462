// Layers of a mixture of experts that replaces the MLP of a block.
#pragma once

#include <cstdint>

#include "model/layer_list.h"

namespace lockstep::model {

/// Adds the router and the gate, up and down projections of each expert, under the family's names.
/// Checkpoints store one tensor per expert, or stacked tensors for all experts of a block:
/// gate_up_proj [E, 2 F, C], gate rows first, and down_proj [E, C, F].
void describe_experts(LayerList& list, int64_t block);

}  // namespace lockstep::model
