// Builds the graph of waits and finds the hanging rank.
#include "launch/workers/waiting.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <unistd.h>

#include "base/format.h"
#include "launch/system/step_file.h"
#include "launch/workers/output.h"
#include "launch/workers/stacks.h"

namespace lockstep::launch {
namespace {

constexpr double kMedians = 3;

const RankView* rank_of(const std::vector<RankView>& ranks, int rank) {
  const auto found = std::find_if(
      ranks.begin(), ranks.end(), [&](const RankView& view) { return view.rank() == rank; });
  return found == ranks.end() ? nullptr : &*found;
}

/// Returns true if the rank has started the call that the rank `from` waits for in `wait`. Messages
/// have no numbers, so for them the receiver has arrived if it waits for a message of the sender.
bool has_come(const RankView& rank, int from, const PendingCall& wait) {
  if (wait.kind == CallKind::kMessages) {
    return std::any_of(
        rank.rank_status.waits.begin(), rank.rank_status.waits.end(), [&](const PendingCall& own) {
          return own.kind == CallKind::kMessages && own.group == wait.group &&
                 std::find(own.ranks.begin(), own.ranks.end(), from) != own.ranks.end();
        });
  }
  const GroupCalls* const group = rank.rank_status.find_group(wait);
  return group != nullptr && group->begun.at(static_cast<size_t>(wait.kind)) > wait.index;
}

/// Returns the last call that is queued on the rank's device. Null if there is none or if the host
/// itself waits.
const PendingCall* last_on_device(const RankView& rank) {
  const PendingCall* last = nullptr;
  for (const PendingCall& wait : rank.rank_status.waits) {
    if (wait.on_device && (last == nullptr || wait.since > last->since)) {
      last = &wait;
    }
  }
  return last;
}

double limit_of(const RankView& rank, std::optional<double> shortest) {
  const double limit = std::max(rank.rank_status.report_after, kMedians * rank.median);
  return shortest ? std::min(limit, *shortest) : limit;
}

/// Returns the ranks of a cycle in the graph of waits. Empty if there is no cycle.
std::vector<int> find_circle(const std::vector<Awaiting>& edges) {
  std::map<int, std::set<int>> next;
  for (const Awaiting& edge : edges) {
    if (!edge.has_come) {
      next[edge.from].insert(edge.to);
    }
  }
  std::vector<int> circle;
  for (const auto& [start, unused] : next) {
    std::set<int> reached;
    std::vector<int> open{start};
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      for (const int to : next[at]) {
        if (reached.insert(to).second) {
          open.push_back(to);
        }
      }
    }
    if (reached.contains(start)) {
      circle.push_back(start);
    }
  }
  return circle;
}

std::string names_of(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// Returns a hint for a process in this state.
std::string remedy_of(const RankView& view) {
  switch (view.state) {
    case 'T':
      return fmt::format(
          "  stopped by SIGSTOP or a terminal: `kill -CONT {}` resumes it\n", view.process);
    case 'D':
      return "  a disk, a file system or a driver does not respond\n";
    default:
      return "";
  }
}

std::string this_host() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string call_text(const PendingCall& wait) {
  return fmt::format(
      "{} number {} of group {}, shape [{}]{}",
      printable(wait.operation),
      wait.sequence,
      printable(wait.group),
      fmt::join(wait.shape, ", "),
      wait.what.empty() ? "" : fmt::format(" ({})", printable(wait.what)));
}

}  // namespace

std::optional<RankView> view_rank(const std::filesystem::path& file) {
  std::optional<RankStatusReading> rank_status = read_rank_status(file);
  if (!rank_status) {
    return std::nullopt;
  }
  RankView view;
  view.process = static_cast<pid_t>(rank_status->process);
  view.state = state_of(view.process);
  if (const std::optional<StepMark> mark = read_step(file)) {
    view.step = mark->step;
    view.median = mark->median;
  }
  view.rank_status = std::move(*rank_status);
  return view;
}

std::vector<Awaiting> who_waits(const std::vector<RankView>& ranks) {
  std::vector<Awaiting> edges;
  for (const RankView& view : ranks) {
    for (const PendingCall& wait : view.rank_status.waits) {
      for (const int rank : wait.ranks) {
        const RankView* const other = rank_of(ranks, rank);
        // Nothing is known about a rank of another machine, so it is never reported as the cause.
        if (rank == view.rank() || other == nullptr) {
          continue;
        }
        const bool come = has_come(*other, view.rank(), wait);
        // If all ranks have started a queued call, it may already have ended, unless it is the last
        // one.
        const bool may_have_ended = come && wait.on_device && &wait != last_on_device(view);
        if (!come || (other->stands() && !may_have_ended)) {
          edges.push_back({view.rank(), rank, come, wait});
        }
      }
    }
  }
  return edges;
}

std::optional<Hang> find_hang(
    const std::vector<RankView>& ranks, double now, std::optional<double> shortest) {
  struct Candidate {
    const RankView* view;
    double seconds, limit;
  };
  std::vector<Candidate> standing, idle, waiting;
  std::set<int> awaiting;  // ranks whose device waits for a rank that has not arrived
  for (const Awaiting& edge : who_waits(ranks)) {
    if (edge.wait.on_device && !edge.has_come) {
      awaiting.insert(edge.from);
    }
  }
  for (const RankView& view : ranks) {
    const double seconds = now - view.rank_status.changed, limit = limit_of(view, shortest);
    const bool measured = view.median > 0 || shortest || view.stands();
    if (view.rank_status.report_after <= 0 || !measured || seconds <= limit || view.state == 'Z' ||
        view.state == '\0') {
      continue;
    }
    const bool waits = awaiting.contains(view.rank()) ||
                       std::any_of(
                           view.rank_status.waits.begin(),
                           view.rank_status.waits.end(),
                           [](const PendingCall& wait) { return !wait.on_device; });
    (view.stands() ? standing : waits ? waiting : idle).push_back({&view, seconds, limit});
  }
  for (const std::vector<Candidate>* const kind : {&standing, &idle}) {
    if (!kind->empty()) {
      const Candidate& first =
          *std::max_element(kind->begin(), kind->end(), [](const auto& a, const auto& b) {
            return a.seconds < b.seconds;
          });
      return Hang{{first.view->rank()}, false, first.seconds, first.limit};
    }
  }
  // A cycle is only reported if every rank is known and has waited too long. Otherwise a rank may
  // still arrive.
  if (waiting.empty() || waiting.size() != ranks.size() ||
      static_cast<int>(ranks.size()) != ranks.front().rank_status.ranks) {
    return std::nullopt;
  }
  const std::vector<int> circle = find_circle(who_waits(ranks));
  if (circle.empty()) {
    return std::nullopt;
  }
  const RankView& first = *rank_of(ranks, circle.front());
  return Hang{circle, true, now - first.rank_status.changed, limit_of(first, shortest)};
}

std::string describe_rank(const RankView& view, double now) {
  std::string text = fmt::format(
      "rank {}{}: step {}, {} for {:.3g} s, last progress {:.3g} s ago, process {} {}",
      view.rank(),
      view.rank_status.coordinate.empty()
          ? ""
          : fmt::format(" ({})", printable(view.rank_status.coordinate)),
      view.step,
      printable(view.rank_status.phase),
      now - view.rank_status.phase_since,
      now - view.rank_status.changed,
      view.process,
      state_text(view.state));
  for (const PendingCall& wait : view.rank_status.waits) {
    if (!wait.on_device) {
      text += fmt::format("; in {} for {:.3g} s", call_text(wait), now - wait.since);
    }
  }
  if (const PendingCall* const last = last_on_device(view)) {
    text += fmt::format(
        "; last queued on its device: {} {:.3g} s ago", call_text(*last), now - last->since);
  }
  return text;
}

std::string describe_waiting(const std::vector<RankView>& ranks, double now) {
  // Ranks that wait for the same ranks in the same call are printed on one line.
  struct Line {
    std::vector<int> from, to;
    bool come;
    double since;
  };
  std::map<std::tuple<int, std::string>, Line> waits;  // by call
  for (const Awaiting& edge : who_waits(ranks)) {
    Line& line = waits[{edge.from, call_text(edge.wait)}];
    line.to.push_back(edge.to);
    line.come = edge.has_come;
    line.since = edge.wait.since;
  }
  std::map<std::tuple<std::string, std::vector<int>, bool>, Line> lines;
  for (const auto& [call, wait] : waits) {
    Line& line =
        lines
            .try_emplace(
                {std::get<1>(call), wait.to, wait.come}, Line{{}, wait.to, wait.come, wait.since})
            .first->second;
    line.from.push_back(std::get<0>(call));
    line.since = std::min(line.since, wait.since);
  }
  std::string text;
  for (const auto& [call, line] : lines) {
    text += fmt::format(
        "  {} {} for {}{}: {}, for {:.3g} s\n",
        names_of(line.from),
        line.from.size() == 1 ? "waits" : "wait",
        names_of(line.to),
        line.come ? " (which has arrived)" : "",
        std::get<0>(call),
        now - line.since);
  }
  return text;
}

std::string describe_hang(const Hang& hang, const std::vector<RankView>& ranks, double now) {
  std::string text;
  if (hang.is_circle) {
    text = fmt::format(
        "{} have waited for each other for {:.3g} s: they are in different operations\n",
        names_of(hang.ranks),
        hang.seconds);
  } else {
    const RankView* const view = rank_of(ranks, hang.ranks.front());
    text = fmt::format(
        "rank {} hangs: no progress for {:.3g} s (more than {:.3g} s) on {}\n",
        hang.ranks.front(),
        hang.seconds,
        hang.limit,
        this_host());
    if (view != nullptr) {
      text += "  " + describe_rank(*view, now) + "\n" + remedy_of(*view);
    }
  }
  const std::string graph = describe_waiting(ranks, now);
  return text + (graph.empty() ? "" : "graph of waits:\n" + graph);
}

}  // namespace lockstep::launch
