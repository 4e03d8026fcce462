// Parser and writer of schedule files.
#include "schedule/file.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "schedule/check.h"

namespace lockstep::schedule {

namespace {

constexpr int kMaxNumber = 1 << 20;  // largest supported stage or micro-batch number
constexpr size_t kMaxBytes = size_t{1} << 28;

[[noreturn]] void fail(const std::string& source, int line, const std::string& what) {
  throw Error(
      ErrorKind::kConfig,
      fmt::format("{}, line {}: {}", source, line, what),
      "actions have the form 0F3 (stage 0, forward, micro-batch 3); the letters are F, B, I and W");
}

std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value > kMaxNumber) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<Action> parse_action(std::string_view text) {
  const std::optional<int> stage = take_number(text);
  if (!stage.has_value() || text.empty()) {
    return std::nullopt;
  }
  Action action{.stage = *stage};
  switch (text.front()) {
    case 'F':
      action.kind = ActionKind::kForward;
      break;
    case 'B':
      action.kind = ActionKind::kBackward;
      break;
    case 'I':
      action.kind = ActionKind::kBackwardInput;
      break;
    case 'W':
      action.kind = ActionKind::kBackwardWeight;
      break;
    default:
      return std::nullopt;
  }
  text.remove_prefix(1);
  const std::optional<int> micro_batch = take_number(text);
  if (!micro_batch.has_value() || !text.empty()) {
    return std::nullopt;
  }
  action.micro_batch = *micro_batch;
  return action;
}

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  size_t begin = 0;
  while (begin < line.size()) {
    const size_t end = std::min(line.find_first_of(", \t\r", begin), line.size());
    if (end > begin) {
      cells.push_back(line.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return cells;
}

// Assigns each stage to the rank that lists actions of the stage.
void place_stages(Schedule& schedule, const std::string& source) {
  for (const std::vector<Action>& actions : schedule.actions) {
    for (const Action& action : actions) {
      schedule.stages = std::max(schedule.stages, action.stage + 1);
      schedule.micro_batches = std::max(schedule.micro_batches, action.micro_batch + 1);
    }
  }
  // Rejects numbers that are too large for the number of actions before memory is allocated for
  // them.
  size_t count = 0;
  for (const std::vector<Action>& actions : schedule.actions) {
    count += actions.size();
  }
  if (static_cast<size_t>(schedule.stages) * static_cast<size_t>(schedule.micro_batches) > count) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} has {} actions, too few for {} stages and {} micro-batches: each pair needs a "
            "forward and a backward",
            source,
            count,
            schedule.stages,
            schedule.micro_batches),
        "look for a number that is too large: stages and micro-batches count from 0");
  }
  schedule.rank_of_stage.assign(schedule.stages, -1);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Action& action : schedule.actions[rank]) {
      int& owner = schedule.rank_of_stage[action.stage];
      owner = owner < 0 ? rank : owner;
    }
  }
}

}  // namespace

Schedule parse_schedule(std::string_view text, const std::string& source) {
  if (text.size() > kMaxBytes) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} is too large: {} bytes", source, text.size()),
        "a schedule file has at most 256 MiB; use fewer micro-batches or a built-in schedule");
  }
  Schedule schedule;
  schedule.kind = Kind::kFile;
  std::vector<int> held;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    std::vector<std::string_view> cells = cells_of(line);
    if (cells.empty()) {
      continue;
    }
    if (cells.front() == "held:") {
      for (std::string_view cell : std::span(cells).subspan(1)) {
        const std::optional<int> value = take_number(cell);
        if (!value.has_value() || !cell.empty()) {
          fail(source, number, "held: expects one integer per rank");
        }
        held.push_back(*value);
      }
      continue;
    }
    std::vector<Action> actions;
    for (const std::string_view cell : cells) {
      const std::optional<Action> action = parse_action(cell);
      if (!action.has_value()) {
        fail(source, number, fmt::format("'{}' is not an action", cell.substr(0, 40)));
      }
      actions.push_back(*action);
    }
    schedule.actions.push_back(std::move(actions));
  }
  if (schedule.actions.empty()) {
    throw Error(
        ErrorKind::kConfig,
        source + " contains no actions",
        "write one line per rank, such as 0F0 0B0");
  }
  schedule.ranks = static_cast<int>(schedule.actions.size());
  place_stages(schedule, source);
  if (!held.empty() && held.size() != schedule.actions.size()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} has memory limits for {} ranks but actions for {}",
            source,
            held.size(),
            schedule.ranks),
        "give one number per line of actions after held:, or remove that line");
  }
  const bool claimed = !held.empty();
  schedule.held_limit =
      claimed ? held : std::vector<int>(schedule.ranks, schedule.stages * schedule.micro_batches);
  require_valid(schedule, source);
  if (!claimed) {
    schedule.held_limit = check(schedule).held;
  }
  return schedule;
}

Schedule read_schedule(const std::filesystem::path& path) {
  return parse_schedule(read_file(path, ErrorKind::kConfig, kLongestJsonTable), path.string());
}

bool names_a_file(std::string_view schedule) {
  return schedule.find_first_of("./") != std::string_view::npos;
}

Schedule cut_down(Schedule schedule, int micro_batches) {
  schedule.micro_batches = micro_batches;
  for (std::vector<Action>& actions : schedule.actions) {
    std::erase_if(
        actions, [&](const Action& action) { return action.micro_batch >= micro_batches; });
  }
  return schedule;
}

std::string schedule_text(const Schedule& schedule) {
  std::string text = fmt::format(
      "# {}: {} ranks, {} stages, {} micro-batches\nheld: {}\n",
      kind_name(schedule.kind),
      schedule.ranks,
      schedule.stages,
      schedule.micro_batches,
      fmt::join(schedule.held_limit, " "));
  for (const std::vector<Action>& actions : schedule.actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      text += i == 0 ? "" : " ";
      text += action_text(actions[i]);
    }
    text += "\n";
  }
  return text;
}

}  // namespace lockstep::schedule
