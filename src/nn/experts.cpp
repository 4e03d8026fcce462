#include "nn/experts.h"

#include <iterator>
#include <numeric>

#include <ATen/ATen.h>

#include "nn/forward_context.h"
#include "ops/host_copies.h"
#include "ops/products.h"

namespace lockstep::nn {
namespace {

/// Rows of tokens in the order of the experts that they go to.
struct SortedRows {
  Tensor tokens;                // [N k] int64: the token of each row
  Tensor places;                // [N k] int64: where the row of each choice of each token is
  std::vector<int64_t> counts;  // of each expert
};

SortedRows sort_by_expert(const Tensor& chosen, int64_t experts) {
  const Tensor flat = chosen.flatten();  // [N k]
  const Tensor order = flat.argsort(/*stable=*/true);
  Tensor places = at::empty_like(order);
  places.scatter_(0, order, at::arange(order.numel(), order.options()));
  // The host waits once, for the counts: at::bincount would wait by itself before.
  const Tensor counts = ops::to_host(
      at::zeros({experts}, flat.options()).scatter_add_(0, flat, at::ones_like(flat)));
  const auto* count = counts.const_data_ptr<int64_t>();
  SortedRows sorted{
      at::floor_divide(order, chosen.size(1)),
      places,
      std::vector<int64_t>(count, count + experts)};
  // The last has what the others have not: rows are split by counts, and have to be all.
  const int64_t others =
      std::accumulate(sorted.counts.begin(), std::prev(sorted.counts.end()), int64_t{0});
  sorted.counts.back() = flat.numel() - others;
  return sorted;
}

}  // namespace

void Router::visit_parameters(const ParameterFunction& function) {
  function({"weight", weight});
  function({"bias", bias});
}

Routing Router::forward(const Tensor& x) const {
  Routing routing;
  Routed& routed = routing.routed;
  routed.logits = ops::matrix_products(x, weight.t());  // [N, E]
  if (bias.defined()) {
    routed.logits = routed.logits + bias;
  }
  routed.probabilities = at::softmax(routed.logits, -1, at::kFloat);
  // A stable sort, and not the largest k, whose order among equals nothing defines.
  routed.experts = routed.probabilities.detach()
                       .argsort(/*stable=*/true, -1, /*descending=*/true)
                       .narrow(-1, 0, experts.per_token)
                       .contiguous();
  routing.weights = routed.probabilities.gather(-1, routed.experts);
  if (experts.normalizes) {
    routing.weights = routing.weights / routing.weights.sum(-1, /*keepdim=*/true);
  }
  return routing;
}

Tensor ExpertExchange::forward(const ExpertRows& rows, const ExpertFunction& experts) const {
  return experts(rows);
}

GateAndUp::GateAndUp(const Tensor& pairs)
    : gate(pairs.slice(-1, 0, std::nullopt, 2)),
      up(pairs.slice(-1, 1, std::nullopt, 2)) {}

ExpertMlp::ExpertMlp(const model::ModelConfig& config, const UnitLayers& layers, int64_t layer)
    : gate_(config),
      layer_(layer),
      mixture_layers_(config.layers - std::ssize(config.experts.dense_layers)),
      router_(std::make_shared<Router>(config.experts)),
      exchange_(std::make_shared<ExpertExchange>()),
      output_(std::make_shared<Junction>()),
      experts_(static_cast<size_t>(config.experts.count)),
      shared_{
          nullptr,
          layers.linear("shared_gate"),
          layers.linear("shared_up"),
          layers.linear("shared_down")},
      shared_weight_(layers.linear("shared_weight")),
      router_name_(layers.name("router")),
      exchange_name_(layers.name("expert_exchange")),
      output_name_(layers.name("mlp_output")),
      shared_names_{
          layers.name("shared_gate"),
          layers.name("shared_up"),
          layers.name("shared_down"),
          layers.name("shared_weight")},
      expert_names_(experts_.size()) {
  for (size_t i = 0; i < experts_.size(); ++i) {
    const auto make = [&](const char* role) {
      expert_names_[i].push_back(layers.name(role, static_cast<int64_t>(i)));
      return layers.linear(role);
    };
    experts_[i].gate_up = make("expert_gate_up");
    experts_[i].gate = make("expert_gate");
    experts_[i].up = make("expert_up");
    experts_[i].down = make("expert_down");
  }
}

Tensor ExpertMlp::forward(const Tensor& x, const ForwardContext& context) const {
  const Tensor flat = x.flatten(0, 1);  // [N, C]
  const Routing routing = router_->forward(flat);
  const Tensor weights =
      with_router_terms(routing.weights, routing.routed, context, layer_, mixture_layers_);
  const SortedRows sorted = sort_by_expert(routing.routed.experts, std::ssize(experts_));
  const Tensor numbers = token_numbers(x.size(1), context);
  const Tensor made = exchange_->forward(
      {flat.index_select(0, sorted.tokens),
       sorted.counts,
       numbers.defined() ? numbers.index_select(0, sorted.tokens.to(at::kCPU)) : Tensor()},
      [&](const ExpertRows& rows) { return run(rows, context); });
  const Tensor outputs = made.index_select(0, sorted.places)
                             .view({flat.size(0), -1, flat.size(1)})
                             .to(weights.scalar_type());  // [N, k, C]
  Tensor sum = at::bmm(weights.unsqueeze(1), outputs).squeeze(1);
  if (shared_.down != nullptr) {
    sum = sum + shared(x, context).flatten(0, 1);
  }
  return output_->forward(sum.to(x.scalar_type()).view_as(x));
}

Tensor ExpertMlp::shared(const Tensor& x, const ForwardContext& context) const {
  return at::sigmoid(shared_weight_->forward(x, context)) *
         shared_.down->forward(activated(shared_, x, context), context);
}

Tensor ExpertMlp::token_numbers(int64_t length, const ForwardContext& context) const {
  if (!context.training() || !exchange_->experts_drop) {
    return {};
  }
  return context
      .token_numbers(exchange_->places ? exchange_->places(length) : at::arange(length, at::kLong))
      .flatten();
}

Tensor ExpertMlp::run(const ExpertRows& rows, const ForwardContext& context) const {
  const std::vector<Tensor> inputs = rows.values.unsqueeze(1).split_with_sizes(rows.counts);
  const std::vector<Tensor> tokens =
      rows.tokens.defined() ? rows.tokens.split_with_sizes(rows.counts) : std::vector<Tensor>{};
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < experts_.size(); ++i) {
    const Expert& expert = experts_[i];
    if (expert.down == nullptr) {
      continue;
    }
    const auto run_in = [&](const ForwardContext& pass) {
      return expert.down->forward(activated(expert, inputs[i], pass), pass);
    };
    outputs.push_back(run_in(tokens.empty() ? context : context.of_tokens(tokens[i])));
  }
  return at::cat(outputs).squeeze(1);
}

Tensor ExpertMlp::activated(
    const Expert& expert, const Tensor& x, const ForwardContext& context) const {
  if (expert.gate_up != nullptr) {
    const GateAndUp both(expert.gate_up->forward(x, context));
    return activate_gate(gate_, both.gate, both.up);
  }
  return activate_gate(gate_, expert.gate->forward(x, context), expert.up->forward(x, context));
}

void ExpertMlp::visit_slots(const SlotFunction& visit) {
  visit(router_name_, router_);
  visit(exchange_name_, exchange_);
  for (size_t i = 0; i < experts_.size(); ++i) {
    Expert& expert = experts_[i];
    size_t role = 0;
    for (auto* linear : {&expert.gate_up, &expert.gate, &expert.up, &expert.down}) {
      if (*linear != nullptr) {
        visit(expert_names_[i][role], *linear);
      }
      ++role;
    }
  }
  if (shared_.down != nullptr) {
    visit(shared_names_[0], shared_.gate);
    visit(shared_names_[1], shared_.up);
    visit(shared_names_[2], shared_.down);
    visit(shared_names_[3], shared_weight_);
  }
  visit(output_name_, output_);
}

}  // namespace lockstep::nn
