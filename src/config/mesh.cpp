// Builds the device mesh from the section `parallel`.
#include "config/mesh.h"

#include <algorithm>

namespace lockstep::config {

mesh::Mesh mesh_of(const ParallelSection& parallel, int ranks) {
  return mesh::make_mesh(
      {.data = parallel.data,
       .pipeline = parallel.pipeline,
       .context = parallel.context,
       .tensor = parallel.tensor},
      ranks);
}

int shard_ranks_of(const ParallelSection& parallel, int ranks, int ranks_of_machine) {
  if (parallel.shard_ranks >= 0) {
    return static_cast<int>(parallel.shard_ranks);
  }
  const auto sharing = static_cast<int>(ranks / (parallel.tensor * parallel.pipeline));
  const auto here = static_cast<int>(std::max<int64_t>(ranks_of_machine / parallel.tensor, 1));
  return here >= sharing || sharing % here != 0 ? 0 : here;
}

}  // namespace lockstep::config
