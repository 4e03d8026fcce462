// Router losses and expert load of a mixture-of-experts model in a step, over all ranks and
// micro-batches.
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

/// Expert load and router losses of one step.
struct ExpertLoad {
  /// Largest and smallest fraction of a layer's routing choices that one expert received, each
  /// taken over all layers. 1 / experts means a balanced load.
  double most = 0, least = 0;
  double balance = 0, z = 0;  // router losses of the step, not multiplied by their coefficients
  double dropped = 0;         // fraction of all routing choices that exceeded the experts' capacity
};

class ExpertLoads {
 public:
  /// Does nothing if the model has no experts. `axes` must outlive this object.
  ExpertLoads(const model::ModelConfig& config, const Plan& plan, ParallelGroups& axes);

  bool is_mixture() const { return experts_ > 0; }
  /// Prepares the micro-batches before they are sharded by sequence: marks padding and adds a log,
  /// the experts' capacity and the router losses. The gradient of a router loss is scaled by
  /// `factor` and averaged over the step. Must be called on every rank with the same number of
  /// micro-batches.
  std::vector<nn::ForwardInputs> open(
      std::span<const nn::ForwardInputs> micro_batches, double factor);
  /// Aggregates the logs after the passes. Must be called on every rank. Returns nullopt if the
  /// model has no experts.
  std::optional<ExpertLoad> close(std::span<const nn::ForwardInputs> micro_batches);

 private:
  std::shared_ptr<const nn::RouterTerms> terms_of(
      std::span<const nn::ForwardInputs> micro_batches, double factor);

  nn::RouterTerms terms_;                               // settings, which are the same in every
                                                        // step
  std::shared_ptr<const nn::ExpertCapacity> capacity_;  // null: unlimited capacity
  ParallelGroups& axes_;
  int64_t experts_, layers_, mixture_layers_;
  double groups_ = 1;  // number of rows or micro-batches in the step, depending on the balance loss
};

}  // namespace lockstep::parallel
