// Router losses and expert load of a mixture over a step, over all ranks and micro-batches.
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

/// Load of a mixture's experts and its router losses.
struct ExpertLoad {
  /// Largest and smallest share of a layer's choices that one expert got, in the worst layer each;
  /// 1 / experts is balanced.
  double most = 0, least = 0;
  double balance = 0, z = 0;  // router losses over the step, before their coefficients
  double dropped = 0;         // share of all choices that exceeded the experts' capacity
};

class ExpertLoads {
 public:
  /// No effect if the model has no experts. `axes` must outlive it.
  ExpertLoads(const model::ModelConfig& config, const Plan& plan, ParallelGroups& axes);

  bool is_mixture() const { return experts_ > 0; }
  /// Prepares the micro-batches before they are sharded by sequence: marks padding, adds a log, the
  /// experts' capacity, and the router losses, whose gradient is `factor` times that of their means
  /// over the step. Every rank must call with the same number.
  std::vector<nn::ForwardInputs> open(
      std::span<const nn::ForwardInputs> micro_batches, double factor);
  /// Collects the logs after the passes. Every rank must call. Returns nullopt if the model is not
  /// a mixture.
  std::optional<ExpertLoad> close(std::span<const nn::ForwardInputs> micro_batches);

 private:
  std::shared_ptr<const nn::RouterTerms> terms_of(
      std::span<const nn::ForwardInputs> micro_batches, double factor);

  nn::RouterTerms terms_;                               // the same in every step
  std::shared_ptr<const nn::ExpertCapacity> capacity_;  // null: unlimited
  ParallelGroups& axes_;
  int64_t experts_, layers_, mixture_layers_;
  double groups_ = 1;  // number of rows or micro-batches in the step
};

}  // namespace lockstep::parallel
