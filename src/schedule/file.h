// Schedule files. Each line is the ordered list of one rank's actions, separated by commas or
// spaces: "0F0, 0F1, 0B0, 0B1". "2I5" is the input gradient of stage 2, micro-batch 5 (F: forward,
// B: backward, I and W: the two halves of B). "#" starts a comment. Empty cells are skipped, so
// that a table drawn against time is also readable. The line "held: 2 1" sets the memory limit, one
// number per rank. Without it, the limit is the peak of the schedule itself.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "schedule/schedule.h"

namespace lockstep::schedule {

/// Returns true if `parallel.schedule` is a file name: it contains a dot or a slash, unlike the
/// names of schedule kinds.
bool names_a_file(std::string_view schedule);

/// Parses and checks a schedule. Throws Error (config) that names `source` and the line, or lists
/// all problems of the schedule.
Schedule parse_schedule(std::string_view text, const std::string& source);
Schedule read_schedule(const std::filesystem::path& path);

/// Returns the schedule for the first `micro_batches` micro-batches. It is valid because
/// dependencies never cross micro-batches.
Schedule cut_down(Schedule schedule, int micro_batches);

/// Returns the schedule in the format of schedule files.
std::string schedule_text(const Schedule& schedule);

}  // namespace lockstep::schedule
