#include "nn/targets.h"

#include <ATen/ATen.h>

namespace lockstep::nn {
namespace {

Targets counted(Tensor tokens, Targets targets = {}) {
  targets.counts = tokens.ne(ops::kIgnoredTarget).sum(1).to(at::kDouble);
  targets.tokens = std::move(tokens);
  return targets;
}

}  // namespace

Targets Targets::to(c10::Device device) const {
  const auto moved = [&](const Tensor& x) { return x.defined() ? x.to(device) : x; };
  return {
      moved(tokens),
      moved(counts),
      moved(kinds),
      moved(groups),
      moved(reference),
      moved(outputs),
      {moved(distributions.positions), distributions.states, distributions.vocabulary}};
}

Targets next_tokens(const Tensor& labels) {
  return counted(
      at::constant_pad_nd(labels.narrow(1, 1, labels.size(1) - 1), {0, 1}, ops::kIgnoredTarget));
}

Targets with_distributions(Targets targets, const Tensor& positions) {
  targets.distributions.positions = positions;
  Tensor tokens = targets.tokens.masked_fill(positions, 0);  // which token is all the same
  return counted(std::move(tokens), std::move(targets));
}

Targets classes_at(const Tensor& positions, const Tensor& classes, int64_t length) {
  const Tensor none = at::full({classes.size(0), length}, ops::kIgnoredTarget, classes.options());
  return counted(none.scatter(1, positions.unsqueeze(1), classes.unsqueeze(1)));
}

}  // namespace lockstep::nn
