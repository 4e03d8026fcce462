#include "nn/targets.h"

#include <ATen/ATen.h>

#include "ops/host_copies.h"

namespace lockstep::nn {
namespace {

Targets counted(Tensor tokens, Targets targets = {}) {
  targets.counts = tokens.ne(ops::kIgnoredTarget).sum(1).to(at::kDouble);
  targets.tokens = std::move(tokens);
  return targets;
}

}  // namespace

Targets Targets::to(c10::Device device) const {
  const auto moved = [&](const Tensor& x) { return x.defined() ? ops::to_device(x, device) : x; };
  return {
      moved(tokens),
      moved(prompts),
      moved(counts),
      moved(prompt_counts),
      moved(kinds),
      moved(groups),
      moved(reference),
      moved(baseline),
      moved(weights),
      moved(outputs),
      {moved(distributions.positions),
       distributions.states,
       distributions.vocabulary,
       moved(distributions.lowered),
       moved(distributions.level)}};
}

Tensor Distributions::all() const {
  return !level.defined() ? positions : positions.defined() ? positions.logical_or(level) : level;
}

Targets Targets::ignored() const {
  const auto zero = [](const Tensor& x) { return x.defined() ? at::zeros_like(x) : x; };
  Targets none = *this;
  none.tokens = at::full_like(tokens, ops::kIgnoredTarget);
  none.prompts = zero(prompts);
  none.counts = zero(counts);
  none.prompt_counts = zero(prompt_counts);
  none.kinds = zero(kinds);
  none.distributions.positions = zero(distributions.positions);
  none.distributions.level = zero(distributions.level);
  return none;
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

Targets with_distributions(
    Targets targets, const Tensor& positions, const Tensor& tokens, const Tensor& lowered) {
  targets = with_distributions(std::move(targets), positions);
  targets.tokens = at::where(positions.logical_and(lowered.ne(0)), tokens, targets.tokens);
  targets.distributions.lowered = lowered;
  return targets;
}

Targets with_level(Targets targets, const Tensor& positions) {
  targets.distributions.level = positions;
  const Tensor of_level = at::where(
      positions,
      at::zeros_like(targets.tokens),
      at::full_like(targets.tokens, ops::kIgnoredTarget));
  Tensor tokens = at::where(positions.any(1, true), of_level, targets.tokens);
  return counted(std::move(tokens), std::move(targets));
}

Targets with_states(Targets targets) {
  const Tensor predicted = targets.tokens.ne(ops::kIgnoredTarget);
  const Tensor places =
      at::constant_pad_nd(predicted.narrow(1, 0, predicted.size(1) - 1), {1, 0}, false);
  targets.distributions.positions = places;
  Tensor tokens =
      at::zeros_like(targets.tokens).masked_fill(places.logical_not(), ops::kIgnoredTarget);
  return counted(std::move(tokens), std::move(targets));
}

Targets next_tokens(const Tensor& labels, const Tensor& are_prompts) {
  Targets targets = next_tokens(labels);
  const Tensor behind =
      at::constant_pad_nd(are_prompts.narrow(1, 1, are_prompts.size(1) - 1), {0, 1}, false);
  targets.prompts = behind.logical_and(targets.tokens.ne(ops::kIgnoredTarget));
  targets.prompt_counts = targets.prompts.sum(1).to(at::kDouble);
  targets.counts = targets.counts - targets.prompt_counts;
  return targets;
}

Targets own_tokens(const Tensor& labels) {
  return counted(labels);
}

Targets classes_at(const Tensor& positions, const Tensor& classes, int64_t length) {
  const Tensor none = at::full({classes.size(0), length}, ops::kIgnoredTarget, classes.options());
  return counted(none.scatter(1, positions.unsqueeze(1), classes.unsqueeze(1)));
}

}  // namespace lockstep::nn
