// Tables of the memory of a job's ranks.
#pragma once

#include <string>

#include "plan/machines/device.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Returns a table of the memory by kind and pipeline rank at the peak of a step, and of the
/// largest rank in each phase; shows whether it fits the device.
std::string memory_table(const Job& job, const Device& device);

/// "1.2 GB".
std::string bytes_text(double bytes);

}  // namespace lockstep::plan
