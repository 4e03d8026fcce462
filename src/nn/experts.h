// Mixture of experts that replaces a block's MLP (Shazeer et al., "Outrageously Large Neural
// Networks", 2017). Tokens are sorted by expert; each expert computes one product over its rows,
// limited by its capacity if one is set (nn/expert_capacity.h).
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

/// Expert assignment of a pass's tokens: the k most probable experts; ties go to the lower index.
struct Routing {
  Routed routed;
  Tensor weights;  // [N, k] float32: factors of the expert outputs
};

/// Top-k router: p = softmax(x W^T + b) or sigmoid(x W^T + b) in float32. Selects the k largest per
/// token, optionally with a correction added for the selection and within groups (model::Experts);
/// optionally normalizes them to sum to 1 and multiplies them by a factor.
struct Router : Layer {
  explicit Router(const model::Experts& experts) : experts(experts) {}
  model::Experts experts;
  Tensor weight;      // [E, C]
  Tensor bias;        // [E]; undefined if the router has no bias
  Tensor correction;  // [E] float32, not trained by gradient; undefined if the router has none
  void visit_parameters(const ParameterFunction& function) override;
  /// x [N, C]
  virtual Routing forward(const Tensor& x) const;

 private:
  /// [N, k] int64: the best by these scores [N, E].
  Tensor chosen(const Tensor& scores) const;
};

/// Token rows sorted by expert.
struct ExpertRows {
  Tensor values;                // [R, C]
  std::vector<int64_t> counts;  // rows of each expert of the whole mixture
  Tensor tokens;  // [R] int64 on the CPU: token number of each row, which seeds the experts'
                  // dropouts (ForwardContext::token_numbers); undefined without dropout
};
/// Applies the experts to sorted rows -> [R, C].
using ExpertFunction = std::function<Tensor(const ExpertRows& rows)>;

/// Computation that is independent of the rows and overlaps with their exchange.
using BesideFunction = std::function<Tensor()>;

/// Result of an exchange: the expert outputs and the result of the overlapped computation.
struct Exchanged {
  /// One function per chunk, each returns [R, C]. Call each once, in order: computation between the
  /// calls overlaps with the exchange of the remaining chunks, and in the backward pass with the
  /// exchange of their gradients.
  std::vector<std::function<Tensor()>> rows;
  Tensor beside;  // undefined if there was no overlapped computation
};

/// Moves tokens to their experts and back. In the default all experts are on this rank; expert
/// parallelism replaces it with an all-to-all. It has no parameters.
struct ExpertExchange {
  bool experts_drop = false;  // experts have dropouts in training
  /// Number of token chunks of a pass; leading chunks may be empty.
  int64_t parts = 1;
  /// Positions of this rank's T tokens in the whole sequence, [T] int64; null: 0, 1, ...
  std::function<Tensor(int64_t length)> places;
  virtual ~ExpertExchange() = default;
  /// `beside` is the computation to overlap; null: none.
  virtual Exchanged forward(
      const std::vector<ExpertRows>& parts,
      const ExpertFunction& experts,
      const BesideFunction& beside) const;
  /// Positions of this rank's tokens, [T].
  Tensor places_of(int64_t length) const;
};

/// Linears of one expert, with gate and up in one product (interleaved) or in two; null: on another
/// rank.
struct Expert {
  std::shared_ptr<Linear> gate_up, gate, up, down;
};

/// Splits an interleaved [..., 2 F] into gate and up.
struct GateAndUp {
  explicit GateAndUp(const Tensor& pairs);
  Tensor gate, up;
};

/// y = sum over the k experts e of w_e down_e(act(gate_e x) * up_e x). If the block has a shared
/// expert, its output is added, in some families multiplied by sigmoid(v x).
class ExpertMlp {
 public:
  /// `config` and `layers` describe the block that owns this MLP.
  ExpertMlp(const model::ModelConfig& config, const UnitLayers& layers, int64_t layer);

  /// x [B, T, C] -> [B, T, C]
  Tensor forward(const Tensor& x, const ForwardContext& context) const;
  void visit_slots(const SlotFunction& visit);

 private:
  /// Runs an expert. Called even with zero rows: the gradients are then zeros, and all ranks issue
  /// the same calls.
  Tensor run(const ExpertRows& rows, const ForwardContext& context) const;
  /// Output of the shared expert: [B, T, C] -> [B, T, C]
  Tensor shared(const Tensor& x, const ForwardContext& context) const;
  /// Input of the down projection.
  Tensor activated(const Expert& expert, const Tensor& x, const ForwardContext& context) const;
  /// [N], numbers of the pass's tokens; undefined without dropout.
  Tensor token_numbers(int64_t length, const ForwardContext& context) const;
  /// [N, k] bool: choices within capacity; undefined: all.
  Tensor kept(const Tensor& chosen, int64_t length, const ForwardContext& context) const;

  Gate gate_;
  int64_t layer_, mixture_layers_;  // in the whole model
  std::shared_ptr<Router> router_;
  std::shared_ptr<ExpertExchange> exchange_;
  std::shared_ptr<RegionBoundary> output_;
  std::vector<Expert> experts_;
  Expert shared_;                          // null if the model has no shared expert
  std::shared_ptr<Linear> shared_weight_;  // null if the shared expert is not gated
  SlotName router_name_, exchange_name_, output_name_;
  std::vector<SlotName> shared_names_;               // gate, up, down, weight
  std::vector<std::vector<SlotName>> expert_names_;  // gate and up, gate, up, down
};

}  // namespace lockstep::nn
