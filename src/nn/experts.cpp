// Mixture-of-experts MLP: router, token sorting and experts.
#include "nn/experts.h"

#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>

#include <ATen/ATen.h>

#include "nn/expert_capacity.h"
#include "nn/forward_context.h"
#include "ops/host_copies.h"
#include "ops/products.h"

namespace lockstep::nn {
namespace {

constexpr double kLeastSum = 1e-20;  // added to the sum of a token's sigmoid scores, as in
                                     // transformers

/// The rows of a chunk of n tokens, sorted by expert.
struct SortedRows {
  int64_t begin, length;        // token range of the chunk
  Tensor tokens;                // [R] int64: index of each row's token in the chunk
  Tensor choices;               // [R] int64: index of each row in the n k choices
  std::vector<int64_t> counts;  // number of rows per expert

  /// Returns this chunk's slice of a per-token tensor.
  Tensor of(const Tensor& tensor) const {
    return length == tensor.size(0) ? tensor : tensor.narrow(0, begin, length);
  }
};

SortedRows sort_by_expert(const Tensor& chosen, int64_t begin, const Tensor& counts) {
  const auto* count = counts.const_data_ptr<int64_t>();
  const int64_t experts = counts.numel() - 1;
  const Tensor order =
      chosen.flatten()
          .argsort(/*stable=*/true)
          .narrow(0, 0, chosen.numel() - count[experts]);  // drops the choices that have no row
  SortedRows sorted{
      begin,
      chosen.size(0),
      at::floor_divide(order, chosen.size(1)),
      order,
      std::vector<int64_t>(count, count + experts)};
  // The last expert's count is the remainder, because the counts must sum to the number of rows.
  const int64_t others =
      std::accumulate(sorted.counts.begin(), std::prev(sorted.counts.end()), int64_t{0});
  sorted.counts.back() = order.numel() - others;
  return sorted;
}

/// `kept` [N, k] bool marks the choices that get a row; undefined: all choices, R = n k.
std::vector<SortedRows> sort_by_expert(
    const Tensor& chosen, const Tensor& kept, int64_t experts, int64_t parts) {
  const Tensor all = kept.defined() ? chosen.masked_fill(kept.logical_not(), experts) : chosen;
  const auto begin = [&](int64_t part) { return all.size(0) * part / parts; };
  std::vector<Tensor> runs, counts;
  for (int64_t part = 0; part < parts; ++part) {
    runs.push_back(all.narrow(0, begin(part), begin(part + 1) - begin(part)));
    const Tensor flat = runs.back().flatten();
    counts.push_back(
        at::zeros({experts + 1}, flat.options()).scatter_add_(0, flat, at::ones_like(flat)));
  }
  // One synchronization for all counts; at::bincount would require another one before it.
  const Tensor on_host = ops::to_host(at::stack(counts));
  std::vector<SortedRows> sorted;
  for (int64_t part = 0; part < parts; ++part) {
    sorted.push_back(
        sort_by_expert(runs[static_cast<size_t>(part)], begin(part), on_host.select(0, part)));
  }
  return sorted;
}

/// Scatters the outputs of the experts back to the choices, [choices, C]; zero for choices without
/// a row.
Tensor by_choice(const Tensor& made, const SortedRows& sorted, int64_t choices) {
  if (sorted.choices.numel() < choices) {
    return at::zeros({choices, made.size(1)}, made.options()).index_copy(0, sorted.choices, made);
  }
  Tensor places = at::empty_like(sorted.choices);
  places.scatter_(0, sorted.choices, at::arange(choices, places.options()));
  return made.index_select(0, places);
}

}  // namespace

void Router::visit_parameters(const ParameterFunction& function) {
  function({"weight", weight});
  function({"bias", bias});
  function({"e_score_correction_bias", correction});
}

Routing Router::forward(const Tensor& x) const {
  const bool is_sigmoid = experts.scores == model::RouterScores::kSigmoid;
  Routing routing;
  Routed& routed = routing.routed;
  // As in transformers, the product for sigmoid scores also has float32 operands.
  routed.logits = is_sigmoid ? ops::matrix_products(x.to(at::kFloat), weight.to(at::kFloat).t())
                             : ops::matrix_products(x, weight.t());  // [N, E]
  if (bias.defined()) {
    routed.logits = routed.logits + bias;
  }
  const Tensor scores =
      is_sigmoid ? at::sigmoid(routed.logits) : at::softmax(routed.logits, -1, at::kFloat);
  routed.probabilities = is_sigmoid ? scores / scores.sum(-1, /*keepdim=*/true) : scores;
  routed.experts = chosen(correction.defined() ? scores.detach() + correction : scores.detach());
  routing.weights = scores.gather(-1, routed.experts);
  if (experts.normalizes) {
    const Tensor sum = routing.weights.sum(-1, /*keepdim=*/true);
    routing.weights = routing.weights / (is_sigmoid ? sum + kLeastSum : sum);
  }
  if (experts.weight_factor != 1) {
    routing.weights = routing.weights * experts.weight_factor;
  }
  return routing;
}

Tensor Router::chosen(const Tensor& scores) const {
  // A stable sort, because the order of equal values is undefined in top-k.
  const auto best = [](const Tensor& values, int64_t count) {
    return values.argsort(/*stable=*/true, -1, /*descending=*/true)
        .narrow(-1, 0, count)
        .contiguous();
  };
  if (experts.groups_per_token == experts.groups) {
    return best(scores, experts.per_token);
  }
  const Tensor grouped = scores.unflatten(-1, {experts.groups, -1});  // [N, groups, E / groups]
  const Tensor groups = best(std::get<0>(grouped.topk(2)).sum(-1), experts.groups_per_token);
  const Tensor left_out =
      at::ones({scores.size(0), experts.groups}, scores.options().dtype(at::kBool))
          .scatter(1, groups, false);
  const Tensor left =
      grouped.masked_fill(left_out.unsqueeze(-1), -std::numeric_limits<double>::infinity());
  return best(left.flatten(1), experts.per_token);
}

Exchanged ExpertExchange::forward(
    const std::vector<ExpertRows>& parts,
    const ExpertFunction& experts,
    const BesideFunction& beside) const {
  Exchanged made;
  for (const ExpertRows& rows : parts) {
    made.rows.emplace_back([of_rows = experts(rows)] { return of_rows; });
  }
  made.beside = beside ? beside() : Tensor();
  return made;
}

Tensor ExpertExchange::places_of(int64_t length) const {
  return places ? places(length) : at::arange(length, at::kLong);
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
      output_(std::make_shared<RegionBoundary>()),
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
  const Tensor& chosen = routing.routed.experts;
  const std::vector<SortedRows> parts = sort_by_expert(
      chosen, kept(chosen, x.size(1), context), std::ssize(experts_), exchange_->parts);
  const Tensor numbers = token_numbers(x.size(1), context);
  std::vector<ExpertRows> rows;
  for (const SortedRows& part : parts) {
    rows.push_back(
        {part.of(flat).index_select(0, part.tokens),
         part.counts,
         numbers.defined() ? part.of(numbers).index_select(0, part.tokens.to(at::kCPU))
                           : Tensor()});
  }
  const bool is_shared = shared_.down != nullptr;
  const Exchanged made = exchange_->forward(
      rows,
      [&](const ExpertRows& part) { return run(part, context); },
      is_shared ? [&] { return shared(x, context); } : BesideFunction());
  std::vector<Tensor> sums;  // [n, C]
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t length = parts[i].length, per_token = chosen.size(1);
    const Tensor outputs = by_choice(made.rows[i](), parts[i], length * per_token)
                               .view({length, per_token, flat.size(1)})
                               .to(weights.scalar_type());
    sums.push_back(at::bmm(parts[i].of(weights).unsqueeze(1), outputs).squeeze(1));
  }
  Tensor sum = sums.size() == 1 ? sums.front() : at::cat(sums);
  if (is_shared) {
    sum = sum + made.beside.flatten(0, 1);
  }
  return output_->forward(sum.to(x.scalar_type()).view_as(x));
}

Tensor ExpertMlp::kept(const Tensor& chosen, int64_t length, const ForwardContext& context) const {
  const auto capacity = context.inputs().expert_capacity;
  if (capacity == nullptr) {
    return {};
  }
  const WithinCapacity within = within_capacity(
      *capacity, chosen, std::ssize(experts_), exchange_->places_of(length), context);
  if (const auto log = context.inputs().routing_log) {
    log->layers.at(layer_).dropped = within.dropped;
  }
  return within.kept;
}

Tensor ExpertMlp::shared(const Tensor& x, const ForwardContext& context) const {
  const Tensor y = shared_.down->forward(activated(shared_, x, context), context);
  return shared_weight_ == nullptr ? y : at::sigmoid(shared_weight_->forward(x, context)) * y;
}

Tensor ExpertMlp::token_numbers(int64_t length, const ForwardContext& context) const {
  if (!context.training() || !exchange_->experts_drop) {
    return {};
  }
  return context.token_numbers(exchange_->places_of(length)).flatten();
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
    if (shared_weight_ != nullptr) {
      visit(shared_names_[3], shared_weight_);
    }
  }
  visit(output_name_, output_);
}

}  // namespace lockstep::nn
