// The layers of a mixture of experts, instead of a block's MLP.
#pragma once

#include <cstdint>

#include "model/layer_list.h"

namespace lockstep::model {

/// Adds the router, then gate, up and down of each expert, under the names of the model's family.
/// Files hold a tensor for each, or one for all experts of a block: gate_up_proj [E, 2 F, C], the
/// gate's rows first, and down_proj [E, C, F].
void describe_experts(LayerList& list, int64_t block);

}  // namespace lockstep::model
