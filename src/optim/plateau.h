// reduce_lr_on_plateau: reduces the learning rate when a metric has stopped improving (torch's
// ReduceLROnPlateau).
#pragma once

#include <memory>

#include "optim/schedule.h"
#include "optim/schedule_arguments.h"

namespace lockstep::optim {

/// Supported arguments: mode (min, max), factor, patience, threshold, threshold_mode (rel, abs),
/// cooldown, min_lr, eps. There is no warm-up. Records problems in `arguments`.
std::unique_ptr<Schedule> make_plateau_schedule(double learning_rate, ScheduleArguments& arguments);

}  // namespace lockstep::optim
