// Creates targets: shifts labels, counts targets, and locates documents.
#include "nn/targets.h"

#include <ATen/ATen.h>

#include "ops/host_copies.h"

namespace lockstep::nn {
namespace {

int64_t count_of(const Tensor& documents) {
  return documents.max().item<int64_t>() + 1;
}

Tensor sums_of(const Tensor& of_tokens, const Tensor& documents, int64_t count) {
  return at::zeros({count}, of_tokens.options().dtype(at::kDouble))
      .index_add(0, documents.flatten(), of_tokens.flatten().to(at::kDouble));
}

Targets counted(Tensor tokens, Targets targets = {}) {
  const Tensor are_here = tokens.ne(ops::kIgnoredTarget);
  targets.counts = targets.documents.defined()
                       ? sums_of(are_here, targets.documents, count_of(targets.documents))
                       : are_here.sum(1).to(at::kDouble);
  targets.tokens = std::move(tokens);
  return targets;
}

}  // namespace

Targets Targets::to(c10::Device device) const {
  const auto moved = [&](const Tensor& x) { return x.defined() ? ops::to_device(x, device) : x; };
  return {
      moved(tokens),
      moved(prompts),
      moved(documents),
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
       distributions.are_own,
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

Tensor Targets::sums(const Tensor& of_tokens) const {
  return documents.defined() ? sums_of(of_tokens, documents, rows())
                             : of_tokens.sum(1, false, at::kDouble);
}

Tensor Targets::to_tokens(const Tensor& of_rows) const {
  return documents.defined() ? of_rows.index({documents}) : of_rows.unsqueeze(1);
}

std::pair<Tensor, Tensor> Targets::first_targets() const {
  const Tensor are_here = tokens.ne(ops::kIgnoredTarget);
  if (!documents.defined()) {
    const Tensor first = are_here.to(at::kInt).argmax(1);  // 0 if this rank has no target of the
                                                           // row
    return {
        first + at::arange(first.size(0), first.options()) * tokens.size(1),
        are_here.any(1).logical_not()};
  }
  const int64_t none = tokens.numel();
  const Tensor places =
      at::arange(none, documents.options()).masked_fill(are_here.logical_not().flatten(), none);
  const Tensor first = at::full({rows()}, none, documents.options())
                           .scatter_reduce(0, documents.flatten(), places, "amin");
  const Tensor is_missing = first.eq(none);
  return {first.masked_fill(is_missing, 0), is_missing};
}

Targets next_tokens(const Tensor& labels) {
  return next_tokens_of_documents(labels, {});
}

Targets next_tokens_of_documents(const Tensor& labels, const Tensor& documents) {
  Targets targets;
  targets.documents = documents;
  return counted(
      at::constant_pad_nd(labels.narrow(1, 1, labels.size(1) - 1), {0, 1}, ops::kIgnoredTarget),
      std::move(targets));
}

Targets with_distributions(Targets targets, const Tensor& positions) {
  targets.distributions.positions = positions;
  Tensor tokens = targets.tokens.masked_fill(positions, 0);  // the token is not used
  return counted(std::move(tokens), std::move(targets));
}

Targets with_distributions(
    Targets targets, const Tensor& positions, const Tensor& tokens, const Tensor& lowered) {
  targets = with_distributions(std::move(targets), positions);
  targets.tokens = at::where(positions.logical_and(lowered.ne(0)), tokens, targets.tokens);
  targets.distributions.lowered = lowered;
  return targets;
}

Targets with_other_tokens(Targets targets, const Tensor& positions) {
  constexpr double kExcluded = 1e30;  // finite, since 0 times Inf is NaN
  const Tensor tokens = targets.tokens;
  targets = with_distributions(
      std::move(targets), positions, tokens, positions.to(at::kDouble) * kExcluded);
  targets.distributions.are_own = true;
  return targets;
}

Targets with_level(Targets targets, const Tensor& positions) {
  targets.distributions.level = positions;
  const Tensor of_level = at::where(
      positions,
      at::zeros_like(targets.tokens),
      at::full_like(targets.tokens, ops::kIgnoredTarget));
  Tensor tokens =
      at::where(targets.to_tokens(targets.sums(positions).gt(0)), of_level, targets.tokens);
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

Targets next_tokens(const Tensor& labels, const Tensor& are_prompts, const Tensor& documents) {
  Targets targets = next_tokens_of_documents(labels, documents);
  const Tensor behind =
      at::constant_pad_nd(are_prompts.narrow(1, 1, are_prompts.size(1) - 1), {0, 1}, false);
  targets.prompts = behind.logical_and(targets.tokens.ne(ops::kIgnoredTarget));
  targets.prompt_counts = targets.sums(targets.prompts);
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

Targets document_classes_at(
    const Tensor& positions, const Tensor& classes, const Tensor& documents) {
  Targets targets;
  targets.documents = documents;
  const Tensor none = at::full({documents.numel()}, ops::kIgnoredTarget, classes.options());
  return counted(none.scatter(0, positions, classes).view_as(documents), std::move(targets));
}

}  // namespace lockstep::nn
