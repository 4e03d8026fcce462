// A schedule run by the executor on stages that do nothing but take time: what its bubble really
// is.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace lockstep::parallel {

enum class RehearsalClock {
  kWall,     // stages sleep: a rank that does leaves the processor to the others
  kVirtual,  // messages carry the time at which they were sent: no machine is too busy for it
};

/// Runs the schedule on ranks as threads of this process, with real messages; every stage takes its
/// times, in seconds, and does nothing else. Returns when each action ran, from the first action's
/// start. On the wall's clock wake-ups and messages make it a little longer than time_schedule
/// says; on the virtual one messages take no time, and it is what the executor makes of the
/// schedule.
schedule::Timeline rehearse(
    const schedule::Schedule& schedule,
    const schedule::Durations& durations,
    RehearsalClock clock = RehearsalClock::kWall);

}  // namespace lockstep::parallel
