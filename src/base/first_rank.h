// Warnings about conditions that every rank of a job finds.
#pragma once

#include <string_view>

namespace lockstep {

/// Logs a warning on rank 0, or in a process without a rank. Repeated texts are logged once.
void warn_on_first_rank(std::string_view text);

}  // namespace lockstep
