// Auxiliary losses of mixture-of-experts routers, which balance the load of the experts, and
// routing statistics.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

using at::Tensor;

/// Scope over which the load-balancing loss is computed.
enum class Balance {
  kNone,
  kRows,   // per row and layer: does not depend on how rows are grouped into micro-batches
  kBatch,  // over all layers of the micro-batch together, as in transformers
};

/// Auxiliary loss terms of routers. Let f_e be the mean number of a token's k choices that are
/// expert e, and P_e its mean probability. The balance term is E sum_e f_e P_e; its gradient treats
/// f as a constant (Fedus et al., "Switch Transformers", 2021, equations 4 to 6), and its value is
/// k if the load is even. It is averaged over rows and layers. The z-loss is the mean of (log sum_e
/// exp of the logits)^2 (Zoph et al., "ST-MoE", 2022, equation 5) over tokens, rows and layers.
struct RouterTerms {
  Balance balance = Balance::kNone;
  double balance_coefficient = 0, z_coefficient = 0;
  /// Weight of the terms of one row (kBatch: of one micro-batch) in the gradients of the pass: the
  /// factor of the loss divided by the number of rows (micro-batches) in the step and by the number
  /// of ranks that compute the same terms.
  double weight = 0;
  /// Sums counts over the ranks that hold slices of the same rows; null: this rank has whole rows.
  std::function<void(const Tensor&)> sum_over_sequence = nullptr;

  bool are_on() const { return balance_coefficient > 0 || z_coefficient > 0; }
};

/// Routing statistics of a pass, by layer. A recomputed layer overwrites its entry.
struct RoutingLog {
  struct Entry {
    Tensor counts;  // [E] float64: how often this rank's tokens chose each expert
    // Set if terms are requested. G is 1 (kBatch) or the number of rows.
    Tensor chosen;         // [G, E] float64: f_e
    Tensor probabilities;  // [G, E] float64: P_e over this rank's tokens
    Tensor z;              // float64 scalar: z-loss of this rank's tokens, summed over G
    Tensor dropped;        // float64 scalar, only with a capacity: number of dropped choices
  };
  std::map<int64_t, Entry> layers;

  /// Returns f for kBatch, [E]: the mean over the layers.
  Tensor mean_chosen() const;
  /// Returns float64 [E + 3] for each layer: the counts, the sums of the balance term and of the
  /// z-loss over this rank's rows, and the number of dropped choices. (kBatch: the sum of the
  /// layers' balance terms is L times that of the pass, where L is the number of layers.)
  std::map<int64_t, Tensor> sums(Balance balance) const;
};

/// Outputs of the router for the rows of a pass.
struct Routed {
  Tensor logits;         // [N, E]
  Tensor probabilities;  // [N, E] float32
  Tensor experts;        // [N, k] int64
};

class ForwardContext;

/// Returns `weights` unchanged. Its backward pass adds the gradients of the requested terms. Writes
/// the statistics to the log of the pass.
Tensor with_router_terms(
    const Tensor& weights,
    const Routed& routed,
    const ForwardContext& context,
    int64_t layer,
    int64_t mixture_layers);

/// Returns x unchanged. In the backward pass, `term` (of any shape) receives the gradient that
/// `gradient` returns at that time, and x receives its own gradient. If gradients are disabled,
/// just returns x.
Tensor with_term(const Tensor& x, const Tensor& term, std::function<Tensor()> gradient);

}  // namespace lockstep::nn
