// Schedules in files. A line a rank, its actions in order, separated by commas or spaces: "0F0,
// 0F1, 0B0, 0B1", where "2I5" is the input gradient of stage 2, micro-batch 5 (F forward, B
// backward, I and W its halves). "#" begins a comment; empty cells are skipped, so that a table
// drawn against time can be read as well. A line "held: 2 1" states the claim about memory, one
// number a rank; without it, what the schedule really holds is the claim.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "schedule/schedule.h"

namespace lockstep::schedule {

/// Whether `parallel.schedule` names a file: it has a dot or a slash, as no kind has.
bool names_a_file(std::string_view schedule);

/// Reads and checks; throws (config) with `source`, the line and all that is wrong.
Schedule parse_schedule(std::string_view text, const std::string& source);
Schedule read_schedule(const std::filesystem::path& path);

/// The first `micro_batches` of a schedule: dependencies lie within one micro-batch, so what is
/// left is as right as the whole.
Schedule cut_down(Schedule schedule, int micro_batches);

/// The same form, readable back.
std::string schedule_text(const Schedule& schedule);

}  // namespace lockstep::schedule
