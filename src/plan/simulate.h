// Simulates a training step: where each millisecond goes.
#pragma once

#include <string>
#include <vector>

#include "plan/cost/cost.h"
#include "plan/machines/cluster.h"
#include "plan/memory/memory.h"
#include "plan/workload/job.h"
#include "schedule/timeline.h"

namespace lockstep::plan {

/// A step, in seconds. The parts add up to step_seconds on the rank of the slowest stage.
struct Step {
  double step_seconds = 0;
  double compute = 0;     // of kernels, without recomputation: the sum of the next
  KernelTimes kernels{};  // by what they compute
  double recompute = 0;
  double tensor = 0;    // exposed tensor-parallel collectives
  double pipeline = 0;  // bubble and messages
  double data = 0;      // exposed gradient reductions and gathers
  double slowed = 0;    // lost by compute beside which ranks communicate
  double waits = 0;     // for the slowest rank
  double optimizer = 0;
  double offload = 0;      // exposed copies to and from the host
  double rest = 0;         // of a step, besides
  double bubble = 0;       // share of the pipeline's time in which a rank idles
  double span_bubble = 0;  // the same where optimizer steps are not synchronised
  double tokens_per_second = 0;
  double model_flops_per_device = 0;  // per second, recomputation not counted
  double utilisation = 0;             // of the 16-bit (8-bit) peak
  double joules = 0;                  // of all devices
  /// What comes besides the pipeline's actions.
  double after_pipeline() const { return data + slowed + waits + optimizer + offload + rest; }
  /// Communication that nothing hides.
  double exposed() const {
    return tensor + data + kernels[static_cast<size_t>(Kernels::kContext)] +
           kernels[static_cast<size_t>(Kernels::kExperts)];
  }
  std::vector<PassTimes> stages;  // of a micro-batch, by stage
  double message = 0;             // between stages
};

/// Ranks with the same place on the pipeline axis do the same at the same time, so each such set is
/// simulated once.
Step simulate(const Job& job, const Cluster& cluster);

/// What a micro-batch keeps from the gradient of its input to that of the weights (the inputs of
/// the products and the gradients of their outputs), as a share of its activations.
double deferred_share(const Job& job);

/// The timeline of the pipeline of a step, for drawings: the schedule and its spans.
struct PipelineTimeline {
  schedule::Schedule schedule;
  schedule::Timeline timeline;
};
PipelineTimeline pipeline_timeline(const Job& job, const Cluster& cluster);

}  // namespace lockstep::plan
