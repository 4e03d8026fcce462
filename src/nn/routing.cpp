// Load-balancing terms and routing statistics of mixtures of experts.
#include "nn/routing.h"

#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "nn/forward_context.h"

namespace lockstep::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct HeldGradient : torch::CustomClassHolder {
  std::function<Tensor()> make;
};

struct WithTerm : torch::autograd::Function<WithTerm> {
  static Tensor forward(
      AutogradContext* context,
      const Tensor& x,
      const Tensor& /*term*/,
      const c10::intrusive_ptr<HeldGradient>& gradient) {
    context->saved_data["gradient"] = c10::IValue::make_capsule(gradient);
    return x.view_as(x);
  }
  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto held = c10::static_intrusive_pointer_cast<HeldGradient>(
        context->saved_data["gradient"].toCapsule());
    return {gradients[0], held->make(), Tensor()};
  }
};

/// Groups over which the balance is computed: single rows or the whole micro-batch.
struct Groups {
  int64_t count;  // number of groups, G
  Tensor real;    // [G, n, 1] float32: mask of the tokens that count, with n tokens per group
};

Groups groups_of(const ForwardContext& context, Balance balance, const Tensor& like) {
  const ForwardInputs& inputs = context.inputs();
  const int64_t tokens = like.size(0);
  const int64_t groups = balance == Balance::kBatch ? 1 : inputs.ids.size(0);
  const auto options = like.options().dtype(at::kFloat);
  const Tensor real = inputs.real_tokens.defined() && inputs.real_tokens.numel() == tokens
                          ? inputs.real_tokens.to(options)
                          : at::ones({tokens}, options);
  return {groups, real.reshape({groups, -1, 1})};
}

/// Returns how often the tokens of each group chose each expert, [G, E] float64.
Tensor choices(const Groups& groups, const Tensor& experts, int64_t count) {
  const int64_t per_token = experts.size(1);
  const Tensor chosen = experts.reshape({groups.count, -1});
  const Tensor weights =
      groups.real.expand({groups.count, -1, per_token}).reshape({groups.count, -1});
  return at::zeros({groups.count, count}, weights.options().dtype(at::kDouble))
      .scatter_add_(1, chosen, weights.to(at::kDouble));
}

/// Returns the choices and token counts of the groups, over whole rows: [G, E], [G, 1].
std::pair<Tensor, Tensor> whole_counts(
    const Tensor& counts, const Groups& groups, const RouterTerms& terms) {
  const Tensor tokens = groups.real.sum(1).to(at::kDouble);  // [G, 1]
  Tensor both = at::cat({counts, tokens}, 1);
  if (terms.sum_over_sequence) {
    terms.sum_over_sequence(both);
  }
  const int64_t experts = counts.size(1);
  return {both.narrow(1, 0, experts), both.narrow(1, experts, 1).clamp_min(1)};
}

}  // namespace

Tensor with_term(const Tensor& x, const Tensor& term, std::function<Tensor()> gradient) {
  if (!at::GradMode::is_enabled() || !term.requires_grad()) {
    return x;
  }
  auto held = c10::make_intrusive<HeldGradient>();
  held->make = std::move(gradient);
  return WithTerm::apply(x, term, held);
}

Tensor RoutingLog::mean_chosen() const {
  Tensor sum;
  for (const auto& [layer, entry] : layers) {
    const Tensor own = entry.chosen.sum(0);
    sum = sum.defined() ? sum + own : own;
  }
  return sum / static_cast<double>(layers.size());
}

std::map<int64_t, Tensor> RoutingLog::sums(Balance balance) const {
  std::map<int64_t, Tensor> result;
  for (const auto& [layer, entry] : layers) {
    Tensor terms = at::zeros({3}, entry.counts.options());
    if (entry.z.defined()) {
      const Tensor chosen = balance == Balance::kBatch ? mean_chosen().unsqueeze(0) : entry.chosen;
      terms[0] = (chosen * entry.probabilities).sum() * entry.counts.size(0);
      terms[1] = entry.z;
    }
    if (entry.dropped.defined()) {
      terms[2] = entry.dropped;
    }
    result.emplace(layer, at::cat({entry.counts, terms}));
  }
  return result;
}

Tensor with_router_terms(
    const Tensor& weights,
    const Routed& routed,
    const ForwardContext& context,
    int64_t layer,
    int64_t mixture_layers) {
  const std::shared_ptr<RoutingLog> log = context.inputs().routing_log;
  if (log == nullptr) {
    return weights;
  }
  const std::shared_ptr<const RouterTerms> terms = context.inputs().router_terms;
  const bool has_terms = terms != nullptr && terms->are_on();
  const int64_t experts = routed.probabilities.size(1);
  const Groups groups =
      groups_of(context, has_terms ? terms->balance : Balance::kBatch, routed.probabilities);
  const Tensor counts = choices(groups, routed.experts, experts);
  RoutingLog::Entry entry{counts.sum(0), {}, {}, {}, {}};
  if (!has_terms) {
    log->layers[layer] = std::move(entry);
    return weights;
  }
  const auto [whole, tokens] = whole_counts(counts, groups, *terms);
  const Tensor each = groups.real / tokens.unsqueeze(1).to(at::kFloat);  // [G, n, 1]
  const Tensor probabilities =
      (routed.probabilities.view({groups.count, -1, experts}) * each).sum(1);  // [G, E]
  const Tensor sizes = at::logsumexp(routed.logits.to(at::kFloat), -1, /*keepdim=*/true);
  const Tensor z = (sizes.square().view({groups.count, -1, 1}) * each).sum();
  entry.chosen = whole / tokens;
  entry.probabilities = probabilities.detach().to(at::kDouble);
  entry.z = z.detach().to(at::kDouble);
  log->layers[layer] = std::move(entry);

  const double of_layer = terms->weight / static_cast<double>(mixture_layers);
  const double of_balance = of_layer * terms->balance_coefficient * static_cast<double>(experts);
  const Tensor balanced = with_term(weights, probabilities, [=] {
    const RoutingLog::Entry& seen = log->layers.at(layer);
    const Tensor chosen =
        terms->balance == Balance::kBatch ? log->mean_chosen().unsqueeze(0) : seen.chosen;
    return (chosen * of_balance).to(at::kFloat);
  });
  return terms->z_coefficient == 0
             ? balanced
             : with_term(balanced, z, [factor = of_layer * terms->z_coefficient, z = z.detach()] {
                 return at::full_like(z, factor);
               });
}

}  // namespace lockstep::nn
