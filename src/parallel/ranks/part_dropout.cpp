// Dropout on sharded activations.
#include "parallel/ranks/part_dropout.h"

#include <vector>

#include <ATen/ops/cat.h>

#include "ops/dropout.h"

namespace lockstep::parallel {

at::Tensor PartDropout::masked(const at::Tensor& x, const at::Tensor& keys) const {
  const int64_t whole = x.size(1) * part.tensor_ranks * part.context_ranks;
  std::vector<at::Tensor> parts;
  for (const PositionRun& run : part.runs(x.size(1))) {
    const bool is_all = run.count == x.size(1);
    parts.push_back(ops::dropout_of_tokens(
        is_all ? x : x.narrow(1, run.local, run.count).contiguous(),
        probability,
        keys,
        {{run.whole, columns.begin}, {whole, width > 0 ? width : x.size(2)}}));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

}  // namespace lockstep::parallel
