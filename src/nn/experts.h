// Mixture of experts that replaces the MLP of a block (Shazeer et al., "Outrageously Large Neural
// Networks", 2017). Tokens are sorted by expert, and each expert computes one product over its
// rows, whose number may be limited by its capacity (nn/expert_capacity.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/model_config.h"
#include "nn/activation.h"
#include "nn/layers.h"
#include "nn/routing.h"
#include "nn/slots.h"
#include "nn/unit_layers.h"

namespace lockstep::nn {

/// Experts assigned to the tokens of a pass: the k most probable ones. If probabilities are equal,
/// the lower index wins.
struct Routing {
  Routed routed;
  Tensor weights;  // [N, k] float32: factors for the outputs of the experts
};

/// Top-k router. p = softmax(x W^T + b) or sigmoid(x W^T + b), computed in float32. Selects the k
/// largest values per token, optionally after adding a correction that is used only for the
/// selection, and optionally within groups (model::Experts). The selected values are optionally
/// normalized to sum to 1 and multiplied by a factor.
struct Router : Layer {
  explicit Router(const model::Experts& experts) : experts(experts) {}
  model::Experts experts;
  Tensor weight;      // [E, C]
  Tensor bias;        // [E]; undefined if the router has no bias
  Tensor correction;  // [E] float32, not trained by gradient descent; undefined if the router has
                      // none
  void visit_parameters(const ParameterFunction& function) override;
  /// Routes the tokens x [N, C].
  virtual Routing forward(const Tensor& x) const;

 private:
  /// Returns the experts with the best scores, [N, k] int64, given all scores [N, E].
  Tensor chosen(const Tensor& scores) const;
};

/// Token rows sorted by expert.
struct ExpertRows {
  Tensor values;                // [R, C]
  std::vector<int64_t> counts;  // number of rows of each expert of the whole mixture
  Tensor tokens;  // [R] int64 on the CPU: token number of each row, used as dropout seed
                  // (ForwardContext::token_numbers); undefined without dropout
};
/// Applies the experts to sorted rows and returns [R, C].
using ExpertFunction = std::function<Tensor(const ExpertRows& rows)>;

/// Independent computation that overlaps with the exchange of the rows.
using BesideFunction = std::function<Tensor()>;

/// Result of an exchange: outputs of the experts, and result of the overlapping computation.
struct Exchanged {
  /// One function per chunk, which returns [R, C]. Each must be called once, in order. Computation
  /// between the calls overlaps with the exchange of the remaining chunks and, in the backward
  /// pass, with the exchange of their gradients.
  std::vector<std::function<Tensor()>> rows;
  Tensor beside;  // undefined if there was no overlapping computation
};

/// Moves tokens to their experts and back. In this default implementation all experts are on this
/// rank; expert parallelism replaces it with an all-to-all exchange. It has no parameters.
struct ExpertExchange {
  bool experts_drop = false;  // true: experts have dropout in training
  /// Number of token chunks per pass. The first chunks may be empty.
  int64_t parts = 1;
  /// Returns the positions of this rank's T tokens in the whole sequence, [T] int64; null: 0, 1,
  /// ...
  std::function<Tensor(int64_t length)> places;
  virtual ~ExpertExchange() = default;
  /// `beside` is the computation that overlaps with the exchange; null: none.
  virtual Exchanged forward(
      const std::vector<ExpertRows>& parts,
      const ExpertFunction& experts,
      const BesideFunction& beside) const;
  /// Returns the positions of this rank's tokens, [T].
  Tensor places_of(int64_t length) const;
};

/// Linear layers of one expert, with gate and up in one interleaved product or in two; null: the
/// expert is on another rank.
struct Expert {
  std::shared_ptr<Linear> gate_up, gate, up, down;
};

/// Splits an interleaved [..., 2 F] into gate and up.
struct GateAndUp {
  explicit GateAndUp(const Tensor& pairs);
  Tensor gate, up;
};

/// Computes y = sum over the k chosen experts e of w_e down_e(act(gate_e x) * up_e x). If the block
/// has a shared expert, its output is added; in some families it is multiplied by sigmoid(v x).
class ExpertMlp {
 public:
  /// `config` and `layers` describe the block that contains this MLP.
  ExpertMlp(const model::ModelConfig& config, const UnitLayers& layers, int64_t layer);

  /// Computes the MLP: x [B, T, C] -> [B, T, C].
  Tensor forward(const Tensor& x, const ForwardContext& context) const;
  void visit_slots(const SlotFunction& visit);

 private:
  /// Runs the experts. Must be called even for zero rows: the gradients are then zero, and all
  /// ranks make the same calls.
  Tensor run(const ExpertRows& rows, const ForwardContext& context) const;
  /// Returns the output of the shared expert: [B, T, C] -> [B, T, C].
  Tensor shared(const Tensor& x, const ForwardContext& context) const;
  /// Returns the input of the down projection.
  Tensor activated(const Expert& expert, const Tensor& x, const ForwardContext& context) const;
  /// Returns the numbers of the pass's tokens, [N]; undefined without dropout.
  Tensor token_numbers(int64_t length, const ForwardContext& context) const;
  /// Returns the choices within capacity, [N, k] bool; undefined: all.
  Tensor kept(const Tensor& chosen, int64_t length, const ForwardContext& context) const;

  Gate gate_;
  int64_t layer_, mixture_layers_;  // index in the whole model; number of mixture layers in the
                                    // whole model
  std::shared_ptr<Router> router_;
  std::shared_ptr<ExpertExchange> exchange_;
  std::shared_ptr<RegionBoundary> output_;
  std::vector<Expert> experts_;
  Expert shared_;                          // null if the model has no shared expert
  std::shared_ptr<Linear> shared_weight_;  // null if the shared expert is not gated
  SlotName router_name_, exchange_name_, output_name_;
  std::vector<SlotName> shared_names_;               // gate, up, down, weight
  std::vector<std::vector<SlotName>> expert_names_;  // gate_up, gate, up, down
};

}  // namespace lockstep::nn
