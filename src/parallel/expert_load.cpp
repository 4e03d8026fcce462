// Aggregates router statistics over ranks and micro-batches.
#include "parallel/expert_load.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "ops/host_copies.h"

namespace lockstep::parallel {

ExpertLoads::ExpertLoads(const model::ModelConfig& config, const Plan& plan, ParallelGroups& axes)
    : axes_(axes),
      experts_(config.experts.count),
      layers_(config.layers),
      mixture_layers_(config.layers - std::ssize(config.experts.dense_layers)) {
  const RouterLosses& losses = plan.router_losses;
  terms_.balance = losses.balance;
  terms_.z_coefficient = losses.z_coefficient;
  if (losses.balance != nn::Balance::kNone) {
    terms_.balance_coefficient = losses.balance_coefficient.value_or(config.experts.balance_loss);
  }
  comm::Communicator& sequence = axes.along(mesh::Axis::kContext);
  if (sequence.size() > 1) {
    terms_.sum_over_sequence = [&sequence](const Tensor& counts) {
      sequence.all_reduce(counts).wait();
    };
  }
  if (plan.expert_capacity_factor > 0) {
    capacity_ = std::make_shared<nn::ExpertCapacity>(
        nn::ExpertCapacity{plan.expert_capacity_factor, terms_.sum_over_sequence});
  }
}

std::vector<nn::ForwardInputs> ExpertLoads::open(
    std::span<const nn::ForwardInputs> micro_batches, double factor) {
  std::vector<nn::ForwardInputs> opened(micro_batches.begin(), micro_batches.end());
  if (!is_mixture()) {
    return opened;
  }
  for (nn::ForwardInputs& inputs : opened) {
    inputs.routing_log = std::make_shared<nn::RoutingLog>();
    inputs.expert_capacity = capacity_;
    if (!inputs.real_tokens.defined()) {
      inputs.real_tokens = at::ones_like(inputs.ids, at::kBool);
    }
  }
  if (terms_.are_on()) {
    const std::shared_ptr<const nn::RouterTerms> terms = terms_of(opened, factor);
    for (nn::ForwardInputs& inputs : opened) {
      inputs.router_terms = terms;
    }
  }
  return opened;
}

std::shared_ptr<const nn::RouterTerms> ExpertLoads::terms_of(
    std::span<const nn::ForwardInputs> micro_batches, double factor) {
  Tensor groups = at::zeros({1}, at::kDouble);
  for (const nn::ForwardInputs& inputs : micro_batches) {
    // Rows that contain only padding do not count.
    groups += terms_.balance == nn::Balance::kBatch
                  ? at::ones({1}, at::kDouble)
                  : inputs.real_tokens.any(1).sum().to(at::kCPU, at::kDouble);
  }
  axes_.along(mesh::Axis::kData).all_reduce(groups).wait();
  groups_ = std::max(groups.item<double>(), 1.0);
  auto terms = std::make_shared<nn::RouterTerms>(terms_);
  // Every tensor rank computes the same losses, so each contributes 1 / tensor.
  terms->weight = factor / groups_ / axes_.mesh().tensor;
  return terms;
}

std::optional<ExpertLoad> ExpertLoads::close(std::span<const nn::ForwardInputs> micro_batches) {
  if (!is_mixture()) {
    return std::nullopt;
  }
  Tensor sums = at::zeros({layers_, experts_ + 3}, at::kDouble);
  std::vector<int64_t> layers;
  std::vector<Tensor> rows;
  for (const nn::ForwardInputs& inputs : micro_batches) {
    for (const auto& [layer, row] : inputs.routing_log->sums(terms_.balance)) {
      layers.push_back(layer);
      rows.push_back(row);
    }
  }
  if (!rows.empty()) {  // stack the rows, so that one device synchronization is sufficient
    const Tensor here = ops::to_host(at::stack(rows));
    for (size_t i = 0; i < layers.size(); ++i) {
      sums[layers[i]].add_(here[static_cast<int64_t>(i)]);
    }
  }
  axes_.data_context().all_reduce(sums).wait();
  axes_.along(mesh::Axis::kPipeline).all_reduce(sums).wait();
  const Tensor counts = sums.narrow(1, 0, experts_), all = counts.sum(1, /*keepdim=*/true);
  const Tensor routed = all.squeeze(1) > 0;  // excludes layers with a dense MLP
  ExpertLoad load;
  if (routed.any().item<bool>()) {
    const Tensor shares = counts.index({routed}) / all.index({routed});
    load.most = shares.max().item<double>();
    load.least = shares.min().item<double>();
    load.dropped = (sums.select(1, experts_ + 2).sum() / all.sum()).item<double>();
  }
  const Tensor terms =
      sums.narrow(1, experts_, 2).sum(0) / (groups_ * static_cast<double>(mixture_layers_));
  load.balance = terms[0].item<double>();
  load.z = terms[1].item<double>();
  return load;
}

}  // namespace lockstep::parallel
