// Rehearsal of a schedule. The executor runs it on stages that only consume time, which measures
// the pipeline bubble.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace lockstep::parallel {

enum class RehearsalClock {
  kWall,     // stages sleep, which leaves the core free for other ranks
  kVirtual,  // messages carry the sender's time, which does not depend on the load of the machine
};

/// Runs the schedule with real messages on ranks that are threads of this process. A stage does
/// nothing but consume its duration, in seconds. Returns the times of each action, relative to the
/// start of the first one. With the wall clock, thread wake-ups and messages make the run slightly
/// longer than time_schedule predicts. With the virtual clock, messages take no time.
schedule::Timeline rehearse(
    const schedule::Schedule& schedule,
    const schedule::Durations& durations,
    RehearsalClock clock = RehearsalClock::kWall);

}  // namespace lockstep::parallel
