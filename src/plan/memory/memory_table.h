// Tables of the memory of a job's ranks.
#pragma once

#include <string>

#include "plan/machines/device.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Returns a table of memory by kind and pipeline rank at the peak of a step, and of the largest
/// rank in each phase. States whether it fits the device.
std::string memory_table(const Job& job, const Device& device);

/// Formats a size, such as "1.2 GB".
std::string bytes_text(double bytes);

}  // namespace lockstep::plan
