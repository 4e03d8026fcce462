// What a mixture's routers are asked besides the experts of each token: terms that keep experts
// evenly loaded, and a record of how they were.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include <ATen/core/Tensor.h>

namespace lockstep::nn {

using at::Tensor;

/// Over what the balance of experts is taken.
enum class Balance {
  kNone,
  kRows,   // of each row and layer: the same however rows are put into micro-batches
  kBatch,  // of the micro-batch, all layers together, as transformers has it
};

/// Terms of the loss that routers add to it. With f_e the mean number of a token's k choices that
/// are expert e, and P_e the mean of its probabilities, the balance is E sum_e f_e P_e, whose
/// gradient takes f for constant (Fedus et al., "Switch Transformers", 2021, equations 4 to 6; k
/// where it is even); over rows and layers its mean. The z-loss is the mean of (log sum_e exp of
/// the logits)^2 (Zoph et al., "ST-MoE", 2022, equation 5), over the row's tokens, rows and layers.
struct RouterTerms {
  Balance balance = Balance::kNone;
  double balance_coefficient = 0, z_coefficient = 0;
  /// What a row's terms (kBatch: the micro-batch's) count in what the pass's gradients are of: the
  /// factor of the loss, by the rows (micro-batches) of the step and by the ranks that all compute
  /// them.
  double weight = 0;
  /// Adds counts up over the ranks that hold parts of the same rows; null: whole rows are here.
  std::function<void(const Tensor&)> sum_over_sequence = nullptr;

  bool are_on() const { return balance_coefficient > 0 || z_coefficient > 0; }
};

/// What the routers of a pass saw, by layer. A layer that is computed again writes it again.
struct RoutingLog {
  struct Entry {
    Tensor counts;  // [E] float64: choices of each expert among this rank's tokens
    // With terms; G is 1 (kBatch) or the number of rows:
    Tensor chosen;         // [G, E] float64: f
    Tensor probabilities;  // [G, E] float64: P, of this rank's tokens alone
    Tensor z;              // float64 scalar: the sum over G of the z-loss, likewise
    Tensor dropped;        // with a capacity, float64 scalar: the choices that found no room
  };
  std::map<int64_t, Entry> layers;

  /// kBatch's f, [E]: the mean over the layers.
  Tensor mean_chosen() const;
  /// Float64 [E + 3] of each of these layers: the counts, of what is here the sums over rows of
  /// the balance and of the z-loss, and the choices that were dropped. (kBatch: the layers'
  /// balances add up to L times the pass's, L being how many there are.)
  std::map<int64_t, Tensor> sums(Balance balance) const;
};

/// What a router saw: of rows of a pass.
struct Routed {
  Tensor logits;         // [N, E]
  Tensor probabilities;  // [N, E] float32
  Tensor experts;        // [N, k] int64
};

class ForwardContext;

/// `weights`, unchanged, whose backward pass adds the terms that the pass asks for; and what was
/// seen, written to the pass's log.
Tensor with_router_terms(
    const Tensor& weights,
    const Routed& routed,
    const ForwardContext& context,
    int64_t layer,
    int64_t mixture_layers);

/// x, unchanged. The backward pass gives `term`, of any shape, the gradient that the function makes
/// then, beside that of x. Where gradients are off just x.
Tensor with_term(const Tensor& x, const Tensor& term, std::function<Tensor()> gradient);

}  // namespace lockstep::nn
