// Simulation of a training step with a breakdown of its time.
#pragma once

#include <string>
#include <vector>

#include "plan/cost/cost.h"
#include "plan/machines/cluster.h"
#include "plan/memory/memory.h"
#include "plan/workload/job.h"
#include "schedule/timeline.h"

namespace lockstep::plan {

/// Times of a step in seconds. On the rank of the slowest stage, the components add up to
/// step_seconds.
struct Step {
  double step_seconds = 0;
  double compute = 0;     // kernels without recomputation: the sum of `kernels`
  KernelTimes kernels{};  // compute by kind
  double recompute = 0;
  double tensor = 0;    // exposed tensor-parallel collectives
  double pipeline = 0;  // bubbles and messages
  double data = 0;      // exposed gradient reductions and gathers
  double slowed = 0;    // slowdown of compute by concurrent communication
  double waits = 0;     // waits for the slowest rank
  double optimizer = 0;
  double offload = 0;      // exposed copies to and from the host
  double rest = 0;         // time not modeled elsewhere
  double bubble = 0;       // fraction of the pipeline's time in which a rank is idle
  double span_bubble = 0;  // same fraction if optimizer steps are not synchronized
  double tokens_per_second = 0;
  double model_flops_per_device = 0;  // FLOP/s per device, without recomputation
  double utilisation = 0;             // fraction of the 16-bit (8-bit) peak
  double joules = 0;                  // energy of all devices
  /// Returns the time outside the pipeline.
  double after_pipeline() const { return data + slowed + waits + optimizer + offload + rest; }
  /// Returns the exposed communication time.
  double exposed() const {
    return tensor + data + kernels[static_cast<size_t>(Kernels::kContext)] +
           kernels[static_cast<size_t>(Kernels::kExperts)];
  }
  std::vector<PassTimes> stages;  // per micro-batch, by stage
  double message = 0;             // seconds per message between stages
};

/// Simulates a step. Ranks with the same pipeline coordinate do the same work at the same time and
/// are simulated as one.
Step simulate(const Job& job, const Cluster& cluster);

/// Returns the fraction of a micro-batch's activations that stay stored between its input-gradient
/// and weight-gradient passes: inputs of products and gradients of their outputs.
double deferred_share(const Job& job);

/// Pipeline timeline of a step for drawings: the schedule and the spans of its actions.
struct PipelineTimeline {
  schedule::Schedule schedule;
  schedule::Timeline timeline;
};
PipelineTimeline pipeline_timeline(const Job& job, const Cluster& cluster);

}  // namespace lockstep::plan
