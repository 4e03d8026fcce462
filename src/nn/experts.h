// A mixture of experts instead of a block's MLP (Shazeer et al., "Outrageously Large Neural
// Networks", 2017). No token is dropped and there is no capacity: tokens are sorted by their
// experts, each of which makes one product over the rows that came to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "model/model_config.h"
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

/// p = softmax(x W^T) in float32, the k largest of each token, divided by their sum if so asked.
struct Router : Layer {
  explicit Router(const model::Experts& experts) : experts(experts) {}
  model::Experts experts;
  Tensor weight;  // [E, C]
  void visit_parameters(const ParameterFunction& function) override;
  /// x [N, C]
  virtual Routing forward(const Tensor& x) const;
};

/// What experts make of rows [R, C] that are sorted by expert -> [R, C]; `counts` are the rows of
/// each expert of the whole mixture.
using ExpertFunction =
    std::function<Tensor(const Tensor& rows, const std::vector<int64_t>& counts)>;

/// Between a block's tokens and its experts. The default has all experts here; whoever spreads them
/// over ranks sends rows there and back. It has no parameters.
struct ExpertExchange {
  virtual ~ExpertExchange() = default;
  virtual Tensor forward(
      const Tensor& rows, const std::vector<int64_t>& counts, const ExpertFunction& experts) const;
};

/// One expert's linears; null: another rank has it.
struct Expert {
  std::shared_ptr<Linear> gate, up, down;
};

/// y = sum over the k experts e of w_e down_e(act(gate_e x) * up_e x).
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
  Tensor run(
      const Tensor& rows, const std::vector<int64_t>& counts, const ForwardContext& context) const;

  model::Activation activation_;
  int64_t layer_, mixture_layers_;  // of the whole model
  std::shared_ptr<Router> router_;
  std::shared_ptr<ExpertExchange> exchange_;
  std::shared_ptr<Junction> output_;
  std::vector<Expert> experts_;
  SlotName router_name_, exchange_name_, output_name_;
  std::vector<std::vector<SlotName>> expert_names_;  // gate, up, down
};

}  // namespace lockstep::nn
