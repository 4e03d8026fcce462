// A mixture of experts instead of a block's MLP (Shazeer et al., "Outrageously Large Neural
// Networks", 2017). Tokens are sorted by their experts, each of which makes one product over the
// rows that came to it: all of them, or those that it has room for (nn/expert_capacity.h).
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

/// Which experts the tokens of a pass go to: the likeliest, of equals the lower.
struct Routing {
  Routed routed;
  Tensor weights;  // [N, k] float32: what their outputs are multiplied by
};

/// p = softmax(x W^T + b) or sigmoid(x W^T + b), in float32; the k largest of each token, where so
/// asked with a correction added for the choice and within groups (model::Experts), divided by
/// their sum, and multiplied by a factor.
struct Router : Layer {
  explicit Router(const model::Experts& experts) : experts(experts) {}
  model::Experts experts;
  Tensor weight;      // [E, C]
  Tensor bias;        // [E]; undefined: none
  Tensor correction;  // [E] float32, which no gradient reaches; undefined: none
  void visit_parameters(const ParameterFunction& function) override;
  /// x [N, C]
  virtual Routing forward(const Tensor& x) const;

 private:
  /// [N, k] int64: the best by these scores [N, E].
  Tensor chosen(const Tensor& scores) const;
};

/// Rows that are sorted by expert.
struct ExpertRows {
  Tensor values;                // [R, C]
  std::vector<int64_t> counts;  // the rows of each expert of the whole mixture
  Tensor tokens;  // [R] int64 on the CPU: the number of each row's token, by which experts'
                  // dropouts draw (ForwardContext::token_numbers); undefined: they draw nothing
};
/// What experts make of rows -> [R, C].
using ExpertFunction = std::function<Tensor(const ExpertRows& rows)>;

/// What has nothing to do with the rows, and may be made while they are on their way.
using BesideFunction = std::function<Tensor()>;

/// What came of rows, and of what was made beside them.
struct Exchanged {
  /// Of each part [R, C], to be called once, in this order: what is computed between the calls is
  /// computed while the rest is on its way, and in the backward pass while its gradients are.
  std::vector<std::function<Tensor()>> rows;
  Tensor beside;  // undefined: there was nothing
};

/// Between a block's tokens and its experts. The default has all experts here; whoever spreads them
/// over ranks sends rows there and back. It has no parameters.
struct ExpertExchange {
  bool experts_drop = false;  // experts have dropouts in training
  /// Into so many runs of tokens a pass is cut; the first of them may be empty.
  int64_t parts = 1;
  /// The places in the whole sequence of the T positions that are here, [T] int64; null: 0, 1, ...
  std::function<Tensor(int64_t length)> places;
  virtual ~ExpertExchange() = default;
  /// `beside` null: there is nothing.
  virtual Exchanged forward(
      const std::vector<ExpertRows>& parts,
      const ExpertFunction& experts,
      const BesideFunction& beside) const;
  /// The places of the positions that are here, [T].
  Tensor places_of(int64_t length) const;
};

/// One expert's linears, gate and up in one product (number by number) or in two; null: another
/// rank has it.
struct Expert {
  std::shared_ptr<Linear> gate_up, gate, up, down;
};

/// Gate and up of [..., 2 F] that has them number by number.
struct GateAndUp {
  explicit GateAndUp(const Tensor& pairs);
  Tensor gate, up;
};

/// y = sum over the k experts e of w_e down_e(act(gate_e x) * up_e x), and where there is an expert
/// that every token goes through, what it gives, in some families times sigmoid(v x).
class ExpertMlp {
 public:
  /// Of the block's description, whose layers these are.
  ExpertMlp(const model::ModelConfig& config, const UnitLayers& layers, int64_t layer);

  /// x [B, T, C] -> [B, T, C]
  Tensor forward(const Tensor& x, const ForwardContext& context) const;
  void visit_slots(const SlotFunction& visit);

 private:
  /// An expert is called without rows too: its parameters' gradients are then zeros, and every rank
  /// has made the same calls.
  Tensor run(const ExpertRows& rows, const ForwardContext& context) const;
  /// Of the expert that every token goes through: [B, T, C] -> [B, T, C]
  Tensor shared(const Tensor& x, const ForwardContext& context) const;
  /// What goes down.
  Tensor activated(const Expert& expert, const Tensor& x, const ForwardContext& context) const;
  /// [N], of the pass's tokens; undefined where nothing is drawn for them.
  Tensor token_numbers(int64_t length, const ForwardContext& context) const;
  /// [N, k] bool, of the experts that tokens chose: which have room; undefined: all.
  Tensor kept(const Tensor& chosen, int64_t length, const ForwardContext& context) const;

  Gate gate_;
  int64_t layer_, mixture_layers_;  // of the whole model
  std::shared_ptr<Router> router_;
  std::shared_ptr<ExpertExchange> exchange_;
  std::shared_ptr<RegionBoundary> output_;
  std::vector<Expert> experts_;
  Expert shared_;                          // null: the model has none
  std::shared_ptr<Linear> shared_weight_;  // null: it has none
  SlotName router_name_, exchange_name_, output_name_;
  std::vector<SlotName> shared_names_;               // gate, up, down, weight
  std::vector<std::vector<SlotName>> expert_names_;  // gate and up, gate, up, down
};

}  // namespace lockstep::nn
