// A rank's shard of a parameter, and the ranks over which its gradient is summed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "mesh/cut.h"
#include "ops/packed_part.h"

namespace lockstep::parallel {

/// A sharded parameter: its whole shape, its cut (including the number of replicas), and the ranks
/// over which its gradient is summed.
struct ShardedParameter {
  std::vector<int64_t> shape;
  mesh::Cut cut;
  /// Ranks whose replicas are used differently (for other heads or another shard of the sequence),
  /// so that their gradients must be added. Null: the gradients of replicas are equal. Gradients
  /// are always also summed over the ranks that process different tokens.
  comm::Communicator* summed_over = nullptr;
};

/// Keyed by Hugging Face name. A parameter without an entry is whole on this rank and is not held
/// by any other rank of the same model replica.
using ShardedParameters = std::map<std::string, ShardedParameter>;

/// Narrows a whole packed matrix to the given cut of [out, in].
void narrow_packed(ops::PackedPart& part, const mesh::Cut& cut);

}  // namespace lockstep::parallel
