// Draws timed schedules as text and as SVG.
#pragma once

#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace lockstep::schedule {

/// Draws one line per rank; time increases to the right. One column is `column` units of time; 0:
/// the duration of the shortest action. An action fills its columns with its name and dots
/// ("F3..."). The name includes the stage if a rank has several stages ("2F3").
std::string draw_text(const Schedule& schedule, const Timeline& timeline, double column = 0);

/// Work that all ranks run sequentially after the last action.
struct Closing {
  std::string name;
  double duration = 0;
};

/// Draws the schedule as a self-contained SVG with one row per rank and one rectangle per action.
/// The color shows the kind of action; later stages of a rank are darker. The tooltip of each
/// rectangle shows its times. The work in `after` is grey.
std::string draw_svg(
    const Schedule& schedule,
    const Timeline& timeline,
    const std::string& title,
    const std::vector<Closing>& after = {});

}  // namespace lockstep::schedule
