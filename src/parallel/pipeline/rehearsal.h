// Rehearsal of a schedule: the executor runs it on stages that only take time, which measures its
// bubble.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace lockstep::parallel {

enum class RehearsalClock {
  kWall,     // stages sleep, which leaves the core to other ranks
  kVirtual,  // messages carry the time at which they were sent, independent of the machine's load
};

/// Runs the schedule on ranks as threads of this process with real messages; every stage only takes
/// its time, in seconds. Returns when each action ran, relative to the first action's start. On the
/// wall clock, wake-ups and messages make it slightly longer than time_schedule predicts; on the
/// virtual clock messages take no time.
schedule::Timeline rehearse(
    const schedule::Schedule& schedule,
    const schedule::Durations& durations,
    RehearsalClock clock = RehearsalClock::kWall);

}  // namespace lockstep::parallel
