// Dropout and noise on sharded activations.
#include "parallel/ranks/part_dropout.h"

#include <vector>

#include <ATen/ops/cat.h>

#include "ops/dropout.h"

namespace lockstep::parallel {
namespace {

/// Applies `function` to each run of the rank's positions, with its region in the whole. `columns`
/// are the columns of x in activations of this width.
template <class Function>
at::Tensor over_runs(
    const at::Tensor& x,
    const SequencePart& part,
    mesh::Range columns,
    int64_t width,
    const Function& function) {
  const int64_t whole = x.size(1) * part.tensor_ranks * part.context_ranks;
  std::vector<at::Tensor> parts;
  for (const PositionRun& run : part.runs(x.size(1))) {
    const bool is_all = run.count == x.size(1);
    parts.push_back(function(
        is_all ? x : x.narrow(1, run.local, run.count).contiguous(),
        ops::DropoutRegion{{run.whole, columns.begin}, {whole, width}}));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 1);
}

}  // namespace

at::Tensor PartDropout::masked(const at::Tensor& x, const at::Tensor& keys) const {
  return over_runs(
      x,
      part,
      columns,
      width > 0 ? width : x.size(2),
      [&](const at::Tensor& run, const ops::DropoutRegion& region) {
        return ops::dropout_of_tokens(run, probability, keys, region);
      });
}

at::Tensor PartNoise::noisy(const at::Tensor& x, double bound, const at::Tensor& keys) const {
  return over_runs(
      x, part_, {}, x.size(2), [&](const at::Tensor& run, const ops::DropoutRegion& region) {
        return ops::add_noise_to_tokens(run, bound, keys, region);
      });
}

}  // namespace lockstep::parallel
