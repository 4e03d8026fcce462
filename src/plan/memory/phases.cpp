// Derives the memory of a rank in each phase of a step.
#include "plan/memory/phases.h"

namespace lockstep::plan {

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::kIdle:
      return "between steps";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      break;
  }
  return "update";
}

Memory memory_in(Phase phase, const Job& job, const Memory& peak) {
  const auto fragments = [&](const Memory& memory) {
    return job.software.fragmentation *
           (memory.activations + memory.working + memory.logits + memory.gathered);
  };
  Memory now = peak;
  if (phase == Phase::kBackward) {
    return now;
  }
  now.working = now.buckets = 0;
  if (phase != Phase::kForward) {
    now.activations = now.logits = now.gathered = 0;
  }
  now.fragmentation += fragments(now) - fragments(peak);
  return now;
}

}  // namespace lockstep::plan
