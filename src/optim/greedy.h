// greedy: raises the learning rate while a metric improves and lowers it otherwise (transformers'
// GreedyLR).
#pragma once

#include <memory>

#include "optim/schedule.h"
#include "optim/schedule_arguments.h"

namespace lockstep::optim {

/// Supported arguments: mode (min, max), factor, patience, threshold, threshold_mode (rel, abs),
/// cooldown, warmup, min_lr, max_lr, eps, smooth, window_size, reset_start. The rate starts at the
/// learning rate; there is no warm-up phase. Records problems in `arguments`.
std::unique_ptr<Schedule> make_greedy_schedule(double learning_rate, ScheduleArguments& arguments);

}  // namespace lockstep::optim
