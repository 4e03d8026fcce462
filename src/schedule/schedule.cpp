// Names and basic queries of pipeline schedules.
#include "schedule/schedule.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"

namespace lockstep::schedule {

namespace {

constexpr std::array<std::pair<Kind, std::string_view>, 7> kNames{{
    {Kind::kNaive, "naive"},
    {Kind::kGpipe, "gpipe"},
    {Kind::kOneFOneB, "1f1b"},
    {Kind::kInterleaved, "interleaved"},
    {Kind::kZbH1, "zb-h1"},
    {Kind::kZbH2, "zb-h2"},
    {Kind::kZbV, "zb-v"},
}};

}  // namespace

char action_letter(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return 'F';
    case ActionKind::kBackward:
      return 'B';
    case ActionKind::kBackwardInput:
      return 'I';
    case ActionKind::kBackwardWeight:
      break;
  }
  return 'W';
}

std::string action_text(const Action& action) {
  return fmt::format("{}{}{}", action.stage, action_letter(action.kind), action.micro_batch);
}

std::string_view kind_name(Kind kind) {
  for (const auto& [named, name] : kNames) {
    if (named == kind) {
      return name;
    }
  }
  return "file";
}

Kind parse_kind(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [kind, text] : kNames) {
    if (text == name) {
      return kind;
    }
    names.emplace_back(text);
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format("unknown pipeline schedule '{}'.{}", name, did_you_mean(name, names)),
      fmt::format("use one of {}, or a schedule file", fmt::join(names, ", ")));
}

std::vector<int> Schedule::stages_of(int rank) const {
  std::vector<int> result;
  for (int stage = 0; stage < stages; ++stage) {
    if (rank_of_stage[stage] == rank) {
      result.push_back(stage);
    }
  }
  return result;
}

int Schedule::virtual_stages() const {
  std::vector<int> counts(ranks, 0);
  for (const int rank : rank_of_stage) {
    ++counts[rank];
  }
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

double formula_bubble(const Request& request, double forward, double input, double weight) {
  const double p = request.ranks;
  const double m = request.micro_batches;
  const double work = forward + input + weight;
  const double v = std::max(request.virtual_stages, 1);
  double idle = 0;
  switch (request.kind) {
    case Kind::kNaive:
      idle = m * (p - 1) * work;
      break;
    case Kind::kGpipe:
    case Kind::kOneFOneB:
      idle = (p - 1) * work;
      break;
    case Kind::kInterleaved:
      idle = (p - 1) * work / v;
      break;
    case Kind::kZbH1:
      idle = (p - 1) * std::max(0.0, forward + input - weight);
      break;
    case Kind::kZbH2:
      idle = (p - 1) * std::max(0.0, forward + input - 2 * weight);
      break;
    case Kind::kZbV:
    case Kind::kFile:
      idle = 0;
      break;
  }
  return idle / (idle + m * work);
}

}  // namespace lockstep::schedule
