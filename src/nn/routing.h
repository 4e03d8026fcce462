// Auxiliary losses of mixture-of-experts routers that balance the experts' load, and routing
// statistics.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

using at::Tensor;

/// Scope of the load-balancing loss.
enum class Balance {
  kNone,
  kRows,   // per row and layer: independent of how rows are grouped into micro-batches
  kBatch,  // over the micro-batch and all layers together, as in transformers
};

/// Auxiliary loss terms of routers. With f_e the mean number of a token's k choices that are expert
/// e, and P_e the mean of its probabilities, the balance term is E sum_e f_e P_e, whose gradient
/// treats f as constant (Fedus et al., "Switch Transformers", 2021, equations 4 to 6; its value is
/// k if the load is even). It is averaged over rows and layers. The z-loss is the mean of (log
/// sum_e exp of the logits)^2 (Zoph et al., "ST-MoE", 2022, equation 5) over the row's tokens, rows
/// and layers.
struct RouterTerms {
  Balance balance = Balance::kNone;
  double balance_coefficient = 0, z_coefficient = 0;
  /// Weight of one row's terms (kBatch: one micro-batch's) in the pass's gradients: the factor of
  /// the loss divided by the rows (micro-batches) of the step and by the ranks that compute the
  /// same terms.
  double weight = 0;
  /// Sums counts over the ranks that hold slices of the same rows; null: this rank has whole rows.
  std::function<void(const Tensor&)> sum_over_sequence = nullptr;

  bool are_on() const { return balance_coefficient > 0 || z_coefficient > 0; }
};

/// Routing statistics of a pass by layer. A recomputed layer overwrites its entry.
struct RoutingLog {
  struct Entry {
    Tensor counts;  // [E] float64: choices of each expert among this rank's tokens
    // Set if terms are requested; G is 1 (kBatch) or the number of rows:
    Tensor chosen;         // [G, E] float64: f
    Tensor probabilities;  // [G, E] float64: P, of this rank's tokens only
    Tensor z;        // float64 scalar: the sum over G of the z-loss, of this rank's tokens only
    Tensor dropped;  // with a capacity, float64 scalar: number of dropped choices
  };
  std::map<int64_t, Entry> layers;

  /// Returns kBatch's f, [E]: the mean over the layers.
  Tensor mean_chosen() const;
  /// Float64 [E + 3] for each of these layers: the counts, the sums over this rank's rows of the
  /// balance and of the z-loss, and the number of dropped choices. (kBatch: the layers' balances
  /// sum to L times the pass's balance, where L is the number of layers.)
  std::map<int64_t, Tensor> sums(Balance balance) const;
};

/// Router outputs for the rows of a pass.
struct Routed {
  Tensor logits;         // [N, E]
  Tensor probabilities;  // [N, E] float32
  Tensor experts;        // [N, k] int64
};

class ForwardContext;

/// Returns `weights` unchanged; its backward pass adds the gradients of the requested terms. Writes
/// the statistics to the pass's log.
Tensor with_router_terms(
    const Tensor& weights,
    const Routed& routed,
    const ForwardContext& context,
    int64_t layer,
    int64_t mixture_layers);

/// Returns x unchanged. The backward pass gives `term`, of any shape, the gradient that `gradient`
/// returns at that time, in addition to the gradient of x. Returns x if gradients are disabled.
Tensor with_term(const Tensor& x, const Tensor& term, std::function<Tensor()> gradient);

}  // namespace lockstep::nn
