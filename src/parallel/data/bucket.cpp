#include "parallel/data/bucket.h"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace lockstep::parallel {
namespace {

Bucket flatten(std::vector<NamedParameter> parameters, at::ScalarType gradient_type) {
  const at::NoGradGuard no_grad;
  std::stable_partition(
      parameters.begin(), parameters.end(), [](const NamedParameter& p) { return p.decays; });
  Bucket bucket;
  int64_t total = 0;
  for (const NamedParameter& p : parameters) {
    bucket.entries.push_back({p.name, p.tensor, total, p.tensor.numel()});
    total += p.tensor.numel();
    bucket.decayed += p.decays ? p.tensor.numel() : 0;
  }
  const auto options = parameters.front().tensor.options().requires_grad(false);
  bucket.values = at::empty({total}, options);
  bucket.gradient = at::zeros({total}, options.dtype(gradient_type));
  for (Bucket::Entry& entry : bucket.entries) {
    const Tensor view =
        bucket.values.narrow(0, entry.offset, entry.count).view(entry.parameter.sizes());
    view.copy_(entry.parameter);
    // set_data keeps the parameter's identity, hooks and own version counter.
    entry.parameter.set_data(view);
  }
  return bucket;
}

}  // namespace

std::vector<Bucket> make_buckets(
    const std::vector<ParameterUnit>& units, int64_t bytes, at::ScalarType gradient_type) {
  std::vector<Bucket> buckets;
  std::vector<NamedParameter> open;
  int64_t open_bytes = 0;
  const auto close = [&] {
    if (!open.empty()) {
      buckets.push_back(flatten(std::exchange(open, {}), gradient_type));
      open_bytes = 0;
    }
  };
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    for (auto p = unit->parameters.rbegin(); p != unit->parameters.rend(); ++p) {
      if (!p->tensor.requires_grad()) {
        continue;
      }
      if (!open.empty() && open.back().tensor.scalar_type() != p->tensor.scalar_type()) {
        close();
      }
      open.push_back(*p);
      open_bytes += static_cast<int64_t>(p->tensor.nbytes());
      if (open_bytes >= bytes) {
        close();
      }
    }
  }
  close();
  return buckets;
}

}  // namespace lockstep::parallel
