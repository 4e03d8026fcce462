// Which part of a parameter a rank holds, and where its gradient is summed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "mesh/cut.h"
#include "ops/packed_part.h"

namespace lockstep::parallel {

/// A parameter of which a rank holds a part: the shape of the whole, the part (with the ranks that
/// hold it too), and where its gradient is summed.
struct ShardedParameter {
  std::vector<int64_t> shape;
  mesh::Cut cut;
  /// The ranks that hold it too and use it each in its own way (for other heads, for another part
  /// of the sequence), so that their gradients add up. Null: their gradients are the same. Over the
  /// ranks that see other tokens every gradient is summed anyway.
  comm::Communicator* summed_over = nullptr;
};

/// By Hugging Face's name. A parameter that is not there is held whole by this rank, and by no
/// other of the ranks that hold the model between them.
using ShardedParameters = std::map<std::string, ShardedParameter>;

/// Makes a whole packed matrix the part of it that a cut of [out, in] leaves.
void narrow_packed(ops::PackedPart& part, const mesh::Cut& cut);

}  // namespace lockstep::parallel
