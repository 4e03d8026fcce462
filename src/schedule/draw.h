// Draws a timed schedule, as text and as an SVG.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace lockstep::schedule {

/// A line a rank, time to the right; one column is `column` units of time (the shortest action
/// where it is 0). An action fills its columns: "F3" and dots for the rest, with the stage in front
/// where a rank has several ("2F3").
std::string draw_text(const Schedule& schedule, const Timeline& timeline, double column = 0);

/// What every rank does after the last action of all, one after the other.
struct Closing {
  std::string name;
  double duration = 0;
};

/// The same as an SVG of its own: a row a rank, a rectangle an action, colours by kind (deeper for
/// later stages of a rank), each with a title that tells its times; grey ones for `after`.
std::string draw_svg(
    const Schedule& schedule,
    const Timeline& timeline,
    const std::string& title,
    const std::vector<Closing>& after = {});

}  // namespace lockstep::schedule
