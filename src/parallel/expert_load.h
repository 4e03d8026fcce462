// The routers of a mixture over a step: the terms that they add to the loss, and how they loaded
// the experts, over all ranks and micro-batches.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/model_config.h"
#include "nn/expert_capacity.h"
#include "nn/forward_context.h"
#include "nn/routing.h"
#include "parallel/plan.h"

namespace lockstep::parallel {

/// How a mixture's experts were loaded, and what its routers' terms were.
struct ExpertLoad {
  /// Of the choices of a layer's tokens, the share of the expert that got the most and of the one
  /// that got the fewest, in the worst layer each; even is 1 by the number of experts.
  double most = 0, least = 0;
  double balance = 0, z = 0;  // RouterTerms', over the step, before they are multiplied
  double dropped = 0;         // the share of all choices that found no room with their experts
};

class ExpertLoads {
 public:
  /// Without effect on a model that is no mixture. `axes` must outlive it.
  ExpertLoads(const model::ModelConfig& config, const Plan& plan, ParallelGroups& axes);

  bool is_mixture() const { return experts_ > 0; }
  /// The micro-batches before they are cut by sequence, each with its padding marked, a log, the
  /// capacity of experts, and the terms, whose gradient is that of `factor` times their means over
  /// the step. Every rank must call, with as many.
  std::vector<nn::ForwardInputs> open(
      std::span<const nn::ForwardInputs> micro_batches, double factor);
  /// After the passes: what they logged. Every rank must call. Nothing where it is no mixture.
  std::optional<ExpertLoad> close(std::span<const nn::ForwardInputs> micro_batches);

 private:
  std::shared_ptr<const nn::RouterTerms> terms_of(
      std::span<const nn::ForwardInputs> micro_batches, double factor);

  nn::RouterTerms terms_;                               // as they are of every step
  std::shared_ptr<const nn::ExpertCapacity> capacity_;  // null: there is none
  ParallelGroups& axes_;
  int64_t experts_, layers_, mixture_layers_;
  double groups_ = 1;  // of the step: rows, or micro-batches
};

}  // namespace lockstep::parallel
