// A rank's shard of a parameter, and the ranks over which its gradient is summed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "mesh/cut.h"
#include "ops/packed_part.h"

namespace lockstep::parallel {

/// A sharded parameter: whole shape, cut (with the number of replicas), and where its gradient is
/// summed.
struct ShardedParameter {
  std::vector<int64_t> shape;
  mesh::Cut cut;
  /// Ranks with a replica that use it differently (for other heads or another shard of the
  /// sequence), so that their gradients must be added. Null: their gradients are equal. Gradients
  /// are always summed over the ranks that process other tokens.
  comm::Communicator* summed_over = nullptr;
};

/// By Hugging Face name. A parameter without an entry is whole on this rank and on no other rank
/// that shares the model.
using ShardedParameters = std::map<std::string, ShardedParameter>;

/// Narrows a whole packed matrix to a cut of [out, in].
void narrow_packed(ops::PackedPart& part, const mesh::Cut& cut);

}  // namespace lockstep::parallel
