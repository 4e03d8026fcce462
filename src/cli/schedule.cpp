// `lockstep schedule`: draws and checks pipeline schedules.
#include "cli/schedule.h"

#include <algorithm>
#include <iostream>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "parallel/pipeline/rehearsal.h"
#include "schedule/check.h"
#include "schedule/draw.h"
#include "schedule/file.h"
#include "start/parse.h"

namespace lockstep::cli {

namespace {

struct ScheduleOptions {
  int stages = 4;
  int chunks = 8;
  int virtual_stages = 0;
  std::string kind = "1f1b";
  std::string file, svg, save;
  std::vector<double> times{1, 1, 1};
  double message = 0;
  double rehearsal_ms = 0;
};

// Maximum width of a drawing on the terminal. Of wider schedules, only the numbers are printed.
constexpr double kWidestDrawing = 400;

schedule::Schedule schedule_of(const ScheduleOptions& options) {
  if (!options.file.empty()) {
    return schedule::read_schedule(options.file);
  }
  return schedule::make_schedule(
      {.kind = schedule::parse_kind(options.kind),
       .ranks = options.stages,
       .micro_batches = options.chunks,
       .virtual_stages = options.virtual_stages});
}

void print_report(
    const schedule::Schedule& schedule,
    const schedule::Timeline& timeline,
    const ScheduleOptions& options) {
  const schedule::Report report = schedule::check(schedule);
  std::cout << fmt::format(
      "bubble {:.4f} of all ranks' time; {:.4f} if a rank's optimizer step does not wait for the "
      "others\n",
      timeline.bubble(),
      timeline.span_bubble());
  if (schedule.kind != schedule::Kind::kFile) {
    const double formula = schedule::formula_bubble(
        {.kind = schedule.kind,
         .ranks = schedule.ranks,
         .micro_batches = schedule.micro_batches,
         .virtual_stages = schedule.virtual_stages()},
        options.times[0],
        options.times[1],
        options.times[2]);
    std::cout << fmt::format(
        "bubble of the formula, with instantaneous messages: {:.4f}\n", formula);
  }
  std::cout << fmt::format(
      "peak activations (micro-batches × stages) by rank: {}\n", fmt::join(report.held, " "));
  std::cout << "verified: complete, free of deadlock, within its memory bound; messages "
            << (report.messages_in_order ? "arrive in the order of use\n"
                                         : "are matched by stage and micro-batch\n");
}

// Measures a rehearsal of the schedule and prints it. One unit of --times lasts rehearsal_ms
// milliseconds.
void print_rehearsal(const schedule::Schedule& schedule, const ScheduleOptions& options) {
  const double unit = options.rehearsal_ms / 1e3;
  const schedule::Timeline measured = parallel::rehearse(
      schedule,
      schedule::even_durations(
          schedule, {options.times[0] * unit, options.times[1] * unit, options.times[2] * unit}));
  std::cout << fmt::format(
      "rehearsed with stages that sleep {} ms per unit of time: bubble {:.4f}; {:.4f} if a rank's "
      "optimizer step does not wait for the others\n",
      options.rehearsal_ms,
      measured.bubble(),
      measured.span_bubble());
}

}  // namespace

int run_schedule(std::vector<std::string> arguments) {
  ScheduleOptions options;
  CLI::App app(
      "Draw a pipeline schedule as text (and as an SVG) with its bubble, and verify that it is "
      "complete, free of deadlock and within its memory bound.",
      "lockstep schedule");
  app.add_option("--stages", options.stages, "Pipeline ranks")->capture_default_str();
  app.add_option("--chunks", options.chunks, "Micro-batches per step. int")->capture_default_str();
  app.add_option(
         "--kind", options.kind, "Schedule. string: naive gpipe 1f1b interleaved zb-h1 zb-h2 zb-v")
      ->capture_default_str();
  app.add_option(
      "--virtual-stages", options.virtual_stages, "Stages per rank (interleaved only). int");
  app.add_option("--file", options.file, "Read the schedule from a file of actions. path");
  app.add_option(
         "--times", options.times, "Forward, input-gradient and weight-gradient time per rank")
      ->expected(3)
      ->delimiter(',');
  app.add_option("--message", options.message, "Time of a message between ranks. float");
  app.add_option(
      "--rehearse",
      options.rehearsal_ms,
      "Also run it on ranks as threads whose stages sleep this number of milliseconds per unit of "
      "time. float");
  app.add_option("--svg", options.svg, "Write the drawing to this file. path");
  app.add_option("--save", options.save, "Write the list of actions to this file. path");
  if (start::parse(app, std::move(arguments)) == start::Parsed::kHelpShown) {
    return 0;
  }
  for (const double time : options.times) {
    if (!(time > 0 && time < 1e12)) {
      throw Error(ErrorKind::kConfig, "--times: three numbers above 0 are required");
    }
  }
  for (const double time : {options.message, options.rehearsal_ms}) {
    if (!(time >= 0 && time < 1e12)) {
      throw Error(
          ErrorKind::kConfig, "--message and --rehearse: a number of at least 0 is required");
    }
  }
  const schedule::Schedule schedule = schedule_of(options);
  schedule::require_valid(schedule, "the schedule");
  const schedule::Timeline timeline = schedule::time_schedule(
      schedule,
      schedule::even_durations(
          schedule, {options.times[0], options.times[1], options.times[2]}, options.message));
  const std::string title = fmt::format(
      "{}: {} ranks, {} stages, {} micro-batches",
      schedule::kind_name(schedule.kind),
      schedule.ranks,
      schedule.stages,
      schedule.micro_batches);
  std::cout << title << "\n";
  const double column =
      *std::min_element(options.times.begin(), options.times.end()) / schedule.virtual_stages();
  if (timeline.end / column <= kWidestDrawing) {
    std::cout << schedule::draw_text(schedule, timeline, column);
  } else {
    std::cout << "(too wide to draw as text: --svg FILE)\n";
  }
  print_report(schedule, timeline, options);
  if (options.rehearsal_ms > 0) {
    print_rehearsal(schedule, options);
  }
  if (!options.svg.empty()) {
    write_file_atomically(
        options.svg, schedule::draw_svg(schedule, timeline, title), ErrorKind::kEnvironment);
    std::cout << "drawing: " << options.svg << "\n";
  }
  if (!options.save.empty()) {
    write_file_atomically(options.save, schedule::schedule_text(schedule), ErrorKind::kEnvironment);
    std::cout << "actions: " << options.save << "\n";
  }
  return 0;
}

}  // namespace lockstep::cli
