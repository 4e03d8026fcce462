// A schedule run by the executor on stages that do nothing but take time: what its bubble really
// is.
#pragma once

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace lockstep::parallel {

/// Runs the schedule on ranks as threads of this process, with real messages; every stage sleeps
/// for its times, in seconds: a rank that sleeps leaves the processor to the others. Returns when
/// each action ran, from the first action's start: wake-ups and messages make it a little longer
/// than time_schedule says.
schedule::Timeline rehearse(
    const schedule::Schedule& schedule, const schedule::Durations& durations);

}  // namespace lockstep::parallel
