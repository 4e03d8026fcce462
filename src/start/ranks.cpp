// Prints the ranks of a run by reading their status files.
#include "start/ranks.h"

#include <cstdio>
#include <map>
#include <vector>

#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "base/terminal.h"
#include "launch/system/step_file.h"
#include "launch/workers/output.h"
#include "launch/workers/stacks.h"
#include "launch/workers/waiting.h"
#include "monitor/rank_file.h"
#include "watch/record/rank_times.h"
#include "watch/record/ranks.h"

namespace lockstep::start {
namespace {

constexpr unsigned kBetweenLooksSeconds = 2;

}  // namespace

std::string ranks_text(const std::filesystem::path& folder, bool with_stacks) {
  const std::string here = watch::own_host();
  std::vector<launch::RankView> views;
  std::map<std::string, std::vector<int>> elsewhere;
  std::string text;
  bool some_live = false;
  for (const watch::RankPlace& place : watch::read_ranks(folder)) {
    if (place.host != here) {
      elsewhere[place.host].push_back(place.rank);
      continue;
    }
    auto view = launch::view_rank(place.rank_status);
    // If a run was killed, another process may now have the process number in its status files.
    if (view && view->process == place.process && launch::state_of(view->process) != '\0') {
      some_live = some_live || view->state != 'Z';
      views.push_back(std::move(*view));
    } else {
      text += fmt::format("rank {}: its process {} is gone\n", place.rank, place.process);
    }
  }
  if (!some_live && elsewhere.empty()) {
    throw Error(
        ErrorKind::kEnvironment,
        fmt::format("no run trains into {}: its ranks are gone", folder.string()),
        "`lockstep runs` prints how it ended");
  }
  const double now = launch::machine_seconds();
  for (const launch::RankView& view : views) {
    text += launch::describe_rank(view, now) + "\n";
  }
  for (const auto& [host, ranks] : elsewhere) {
    text += fmt::format(
        "ranks {} are on {}: run the command there\n",
        fmt::join(ranks, ", "),
        launch::printable(host));
  }
  if (const std::string graph = launch::describe_waiting(views, now); !graph.empty()) {
    text += "graph of waits:\n" + graph;
  }
  if (const auto hang = launch::find_hang(views, now)) {
    text += fmt::format(
        "{} {}: no progress for {:.3g} s\n",
        hang->is_circle ? "ranks waiting for each other:" : "hangs: rank",
        fmt::join(hang->ranks, ", "),
        hang->seconds);
  }
  watch::RankTimes times(folder / monitor::kRanksName);
  times.refresh();
  if (const std::string slow = monitor::slow_text(times.lately(), times.usual_compute());
      !slow.empty()) {
    text += fmt::format("until step {}: {}\n", times.lately().step, slow);
  }
  if (with_stacks) {
    for (const launch::RankView& view : views) {
      text += fmt::format("stacks of rank {}:\n{}", view.rank(), launch::stacks_of(view.process));
    }
  }
  return text;
}

int watch_ranks(const std::filesystem::path& folder) {
  const bool redraws = has_control_sequences(STDOUT_FILENO);
  std::string text = ranks_text(folder, /*with_stacks=*/false);
  while (true) {
    fmt::print("{}{}{}", redraws ? "\033[H\033[J" : "", text, redraws ? "" : "\n");
    std::fflush(stdout);
    ::sleep(kBetweenLooksSeconds);
    try {
      text = ranks_text(folder, /*with_stacks=*/false);
    } catch (const Error&) {
      fmt::print("the run has ended\n");
      return 0;
    }
  }
}

}  // namespace lockstep::start
