// Simulation of a training step, with a breakdown of its time.
#pragma once

#include <string>
#include <vector>

#include "plan/cost/cost.h"
#include "plan/machines/cluster.h"
#include "plan/memory/memory.h"
#include "plan/workload/job.h"
#include "schedule/timeline.h"

namespace lockstep::plan {

/// Times of a step, in seconds. The parts add up to step_seconds on the rank of the slowest stage.
struct Step {
  double step_seconds = 0;
  double compute = 0;     // kernels without recomputation: the sum of `kernels`
  KernelTimes kernels{};  // by kind
  double recompute = 0;
  double tensor = 0;    // exposed tensor-parallel collectives
  double pipeline = 0;  // bubble and messages
  double data = 0;      // exposed gradient reductions and gathers
  double slowed = 0;    // slowdown of compute by concurrent communication
  double waits = 0;     // waits for the slowest rank
  double optimizer = 0;
  double offload = 0;      // exposed copies to and from the host
  double rest = 0;         // remaining time of a step
  double bubble = 0;       // fraction of the pipeline's time in which a rank is idle
  double span_bubble = 0;  // the same if optimizer steps are not synchronized
  double tokens_per_second = 0;
  double model_flops_per_device = 0;  // per second, without recomputation
  double utilisation = 0;             // fraction of the 16-bit (8-bit) peak
  double joules = 0;                  // of all devices
  /// Returns the time outside the pipeline.
  double after_pipeline() const { return data + slowed + waits + optimizer + offload + rest; }
  /// Returns the exposed communication.
  double exposed() const {
    return tensor + data + kernels[static_cast<size_t>(Kernels::kContext)] +
           kernels[static_cast<size_t>(Kernels::kExperts)];
  }
  std::vector<PassTimes> stages;  // per micro-batch, by stage
  double message = 0;             // between stages
};

/// Simulates a step. Ranks with the same pipeline coordinate do the same work at the same time, so
/// each such set is simulated once.
Step simulate(const Job& job, const Cluster& cluster);

/// Returns the fraction of a micro-batch's activations stored between its input-gradient and
/// weight-gradient passes (inputs of the products and gradients of their outputs).
double deferred_share(const Job& job);

/// Timeline of the pipeline of a step for drawings: the schedule and its spans.
struct PipelineTimeline {
  schedule::Schedule schedule;
  schedule::Timeline timeline;
};
PipelineTimeline pipeline_timeline(const Job& job, const Cluster& cluster);

}  // namespace lockstep::plan
