// Exports a traced step in Chrome's format and summarizes it per rank.
#include "monitor/trace.h"

#include <algorithm>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"

namespace lockstep::monitor {
namespace {

using Kind = TraceEvent::Kind;

const char* category(Kind kind) {
  switch (kind) {
    case Kind::kAction:
      return "action";
    case Kind::kStageWait:
      return "wait for a stage";
    case Kind::kCommunication:
      return "communication";
    case Kind::kCopy:
      return "copy";
    case Kind::kOther:
      break;
  }
  return "step";
}

double overlap(double begin, double end, double other_begin, double other_end) {
  return std::max(0.0, std::min(end, other_end) - std::max(begin, other_begin));
}

/// Returns for how many seconds of [begin, end) there are events of a kind.
double time_within(const RankTrace& rank, Kind kind, double begin, double end) {
  double sum = 0;
  for (const TraceEvent& event : rank.events) {
    sum += event.kind == kind ? overlap(begin, end, event.begin, event.end) : 0;
  }
  return sum;
}

nlohmann::ordered_json named(const char* what, int pid, int tid, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", pid}, {"tid", tid}, {"args", {{"name", name}}}};
}

/// Lanes of a rank in the trace. Viewers show overlapping events in a lane as nested, so
/// overlapping events are placed in separate lanes.
class Lines {
 public:
  Lines(int rank, nlohmann::ordered_json& events) : rank_(rank), events_(events) {}

  /// Returns the id of a lane with this name that is free at `begin`, and reserves it until `end`.
  int take(const std::string& name, double begin, double end) {
    std::vector<Line>& lines = by_name_[name];
    for (Line& line : lines) {
      if (line.free_from <= begin) {
        line.free_from = end;
        return line.id;
      }
    }
    lines.push_back({next_++, end});
    events_.push_back(named("thread_name", rank_, lines.back().id, name));
    return lines.back().id;
  }

 private:
  struct Line {
    int id;
    double free_from;
  };
  int rank_;
  nlohmann::ordered_json& events_;
  std::map<std::string, std::vector<Line>> by_name_;
  int next_ = 0;
};

std::string line_of(const TraceEvent& event) {
  return event.kind == Kind::kCommunication ? "group " + event.group
         : event.kind == Kind::kCopy        ? "copies"
                                            : "actions";
}

void add_rank(const RankTrace& rank, double zero, nlohmann::ordered_json& events) {
  constexpr double kMicroseconds = 1e6;
  events.push_back(
      named("process_name", rank.rank, 0, fmt::format("rank {} ({})", rank.rank, rank.label)));
  Lines lines(rank.rank, events);
  std::vector<TraceEvent> sorted = rank.events;
  std::stable_sort(sorted.begin(), sorted.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.begin < b.begin;
  });
  for (const TraceEvent& event : sorted) {
    nlohmann::ordered_json arguments = nlohmann::ordered_json::object();
    if (event.kind == Kind::kCommunication || event.kind == Kind::kCopy) {
      const double seconds = event.end - event.begin;
      arguments["bytes"] = event.bytes;
      arguments["GB/s"] = seconds > 0 ? static_cast<double>(event.bytes) / seconds / 1e9 : 0.0;
      arguments["waited_ms"] = (event.end - event.waited_from) * 1e3;
    }
    events.push_back(
        {{"ph", "X"},
         {"name", event.name},
         {"cat", category(event.kind)},
         {"pid", rank.rank},
         {"tid", lines.take(line_of(event), event.begin, event.end)},
         {"ts", (event.begin - zero) * kMicroseconds},
         {"dur", (event.end - event.begin) * kMicroseconds},
         {"args", arguments}});
  }
}

}  // namespace

std::string to_text(const RankTrace& trace) {
  nlohmann::json events = nlohmann::json::array();
  for (const TraceEvent& e : trace.events) {
    events.push_back(
        {static_cast<int>(e.kind), e.name, e.begin, e.end, e.group, e.bytes, e.waited_from});
  }
  return nlohmann::json{
      {"rank", trace.rank},
      {"label", trace.label},
      {"begin", trace.begin},
      {"end", trace.end},
      {"events", events}}
      .dump();
}

RankTrace from_text(const std::string& text) {
  const nlohmann::json json = parse_json(text, "a rank's trace", ErrorKind::kInternal);
  try {
    RankTrace trace{json.at("rank"), json.at("label"), json.at("begin"), json.at("end"), {}};
    for (const nlohmann::json& e : json.at("events")) {
      trace.events.push_back(
          {static_cast<Kind>(e.at(0).get<int>()),
           e.at(1),
           e.at(2),
           e.at(3),
           e.at(4),
           e.at(5),
           e.at(6)});
    }
    return trace;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kInternal, fmt::format("a rank's trace: {}", error.what()));
  }
}

std::string chrome_trace(std::span<const RankTrace> ranks, const ForeseenPasses& foreseen) {
  double zero = std::numeric_limits<double>::infinity();
  for (const RankTrace& rank : ranks) {
    zero = std::min(zero, rank.begin);
  }
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const RankTrace& rank : ranks) {
    add_rank(rank, zero, events);
  }
  nlohmann::ordered_json trace{{"traceEvents", events}, {"displayTimeUnit", "ms"}};
  if (!foreseen.passes.empty()) {
    auto places = nlohmann::ordered_json::array();
    for (const std::vector<TraceEvent>& place : foreseen.passes) {
      auto passes = nlohmann::ordered_json::array();
      for (const TraceEvent& pass : place) {
        passes.push_back({pass.name, pass.begin, pass.end});
      }
      places.push_back(std::move(passes));
    }
    trace["lockstep"] = {{"pipeline", foreseen.place}, {"predicted", std::move(places)}};
  }
  return trace.dump();
}

std::vector<TraceSummary> summarize(std::span<const RankTrace> ranks) {
  double first = std::numeric_limits<double>::infinity(), last = -first;
  for (const RankTrace& rank : ranks) {
    for (const TraceEvent& event : rank.events) {
      if (event.kind == Kind::kAction) {
        first = std::min(first, event.begin);
        last = std::max(last, event.end);
      }
    }
  }
  std::vector<TraceSummary> result;
  for (const RankTrace& rank : ranks) {
    TraceSummary summary;
    summary.step = rank.end - rank.begin;
    double busy = 0, waited_in_actions = 0;
    for (const TraceEvent& event : rank.events) {
      if (event.kind == Kind::kAction) {
        busy += event.end - event.begin;
      } else if (event.kind == Kind::kStageWait) {
        summary.stage_waits += event.end - event.begin;
      } else if (event.kind == Kind::kCommunication || event.kind == Kind::kCopy) {
        const double from = event.waited_from, to = event.end;
        waited_in_actions += time_within(rank, Kind::kAction, from, to);
        summary.exposed += to - from - time_within(rank, Kind::kStageWait, from, to);
      }
    }
    summary.compute = busy - waited_in_actions;
    summary.other = summary.step - summary.compute - summary.stage_waits - summary.exposed;
    summary.bubble = last > first ? 1 - busy / (last - first) : 0;
    result.push_back(summary);
  }
  return result;
}

std::string summary_table(std::span<const RankTrace> ranks) {
  std::string text = fmt::format(
      "milliseconds of the step by rank; exposed: communication that is not overlapped\n{:>5} "
      "{:>10} {:>10} {:>10} {:>10} {:>10} {:>8}  {}\n",
      "rank",
      "step",
      "compute",
      "stages",
      "exposed",
      "other",
      "bubble",
      "place");
  const std::vector<TraceSummary> summaries = summarize(ranks);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const TraceSummary& summary = summaries[i];
    text += fmt::format(
        "{:>5} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f} {:>7.1f}%  {}\n",
        ranks[i].rank,
        summary.step * 1e3,
        summary.compute * 1e3,
        summary.stage_waits * 1e3,
        summary.exposed * 1e3,
        summary.other * 1e3,
        summary.bubble * 100,
        ranks[i].label);
  }
  return text;
}

}  // namespace lockstep::monitor
