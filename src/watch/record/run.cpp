// Reads the state of a run from its folder.
#include "watch/record/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json_lines.h"
#include "base/json_number.h"
#include "config/core/value.h"
#include "config/core/yaml.h"
#include "monitor/events.h"

namespace lockstep::watch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTail = size_t{64}
                         << 10;  // bytes at the end of metrics.jsonl that a summary reads
constexpr int kDeepest = 8;      // maximum depth of the search for runs

template <class Body>
void for_each_line_of(std::string_view text, const Body& body) {
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    body(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

std::optional<double> number_at(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<double>())
                                                     : std::nullopt;
}

int64_t whole_at(const nlohmann::json& object, const char* key) {
  return bounded_integer_of(number_at(object, key).value_or(0));
}

std::string text_at(const nlohmann::json& object, const char* key, const char* otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : otherwise;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// Returns the complete lines at the end of a file.
std::string tail_of(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) {
    return "";
  }
  const File file(path, File::Mode::kRead, ErrorKind::kData);
  const uint64_t size = file.size();
  std::string text(std::min<uint64_t>(size, kTail), '\0');
  file.read_at(size - text.size(), std::as_writable_bytes(std::span(text)));
  if (size > text.size()) {
    text.erase(0, text.find('\n') + 1);
  }
  return text;
}

void read_tail(RunSummary& run) {
  for_each_line_of(tail_of(run.folder / "metrics.jsonl"), [&](std::string_view text) {
    const nlohmann::json line = parse_json_line(text);
    if (line.is_null()) {
      return;
    }
    run.step = std::max(run.step, whole_at(line, "step"));
    if (line.contains("loss")) {
      run.loss = number_at(line, "loss");
      run.learning_rate = number_at(line, "learning_rate");
      run.tokens_per_s = number_at(line, "tokens_per_s");
      run.step_s = number_at(line, "step_s");
    }
  });
}

double modified_at(const fs::path& path) {
  std::error_code none;
  const auto time = fs::last_write_time(path, none);
  if (none) {
    return 0;
  }
  return std::chrono::duration<double>(std::chrono::file_clock::to_sys(time).time_since_epoch())
      .count();
}

/// Returns the seconds spent in steps that were not lost. For an attempt that was followed by
/// another one, only steps up to its last checkpoint count. For the last attempt, all steps count.
double kept_seconds(const std::vector<Event>& events) {
  double kept = 0, saved = 0, done = 0;
  for (const Event& event : events) {
    if (event.name == "began") {
      kept += saved;
      saved = done = 0;
      continue;
    }
    done = number_at(event.fields, "in_steps_s").value_or(done);
    if (event.name == "saved") {
      saved = done;
    }
  }
  return kept + done;
}

void read_end(RunSummary& run, const std::vector<Event>& events, double now) {
  const Event* const last = events.empty() ? nullptr : &events.back();
  const auto ended_as = [&](const char* name) { return last != nullptr && last->name == name; };
  if (ended_as("finished") || (last == nullptr && fs::exists(run.folder / "train_results.json"))) {
    run.end = End::kFinished;
  } else if (ended_as("stopped")) {
    run.end = End::kStopped;
    run.reason = text_at(last->fields, "by", "");
  } else if (ended_as("failed")) {
    run.end = End::kFailed;
    run.reason = first_line(text_at(last->fields, "error", "no reason recorded"));
  } else {
    run.end = is_locked(run.folder / ".lockstep-lock") ? End::kRunning : End::kKilled;
  }
  if (!run.began) {
    return;
  }
  const double sign = run.end == End::kRunning ? now
                      : run.end == End::kKilled
                          ? std::max(last->time, modified_at(run.folder / "metrics.jsonl"))
                          : last->time;
  double kept = kept_seconds(events);
  if (run.step > last->step && (run.end == End::kRunning || run.end == End::kKilled)) {
    kept += static_cast<double>(run.step - last->step) * run.step_s.value_or(0);
  }
  if (sign > *run.began) {
    run.goodput = std::min(1.0, kept / (sign - *run.began));
  }
}

}  // namespace

std::vector<Event> read_events(
    const fs::path& folder, std::initializer_list<std::string_view> names) {
  std::vector<Event> events;
  const fs::path path = folder / monitor::kEventsName;
  std::error_code none;
  if (!fs::is_regular_file(path, none)) {
    return events;
  }
  const auto is_wanted = [&](std::string_view name) {
    return names.size() == 0 || std::ranges::find(names, name) != names.end();
  };
  const auto may_be_wanted = [&](std::string_view text) {  // avoids parsing all other lines
    return names.size() == 0 || std::ranges::any_of(names, [&](std::string_view name) {
             return text.find(fmt::format("\"{}\"", name)) != std::string_view::npos;
           });
  };
  for_each_line(path, [&](std::string_view text) {
    const bool begins = text.find("\"began\"") != std::string_view::npos;
    if (!begins && !may_be_wanted(text)) {
      return;
    }
    nlohmann::json line = parse_json_line(text);
    std::string name = text_at(line, "event", "");
    if (name.empty()) {
      return;
    }
    Event event{number_at(line, "time").value_or(0), whole_at(line, "step"), std::move(name), {}};
    if (event.name == "began" && event.step == 0 && whole_at(line, "round") == 0) {
      events.clear();
    }
    if (is_wanted(event.name)) {
      event.fields = std::move(line);
      events.push_back(std::move(event));
    }
  });
  return events;
}

std::string end_text(const RunSummary& run) {
  switch (run.end) {
    case End::kRunning:
      return "running";
    case End::kFinished:
      return "finished";
    case End::kStopped:
      return fmt::format("stopped by {}", run.reason);
    case End::kFailed:
      return fmt::format("failed: {}", run.reason);
    case End::kUnreadable:
      return fmt::format("cannot be read: {}", run.reason);
    case End::kKilled:
      break;
  }
  return "ended unexpectedly";
}

bool is_run(const fs::path& folder) {
  std::error_code none;
  return fs::is_regular_file(folder / "metrics.jsonl", none) ||
         fs::is_regular_file(folder / monitor::kEventsName, none);
}

RunSummary summarize(const fs::path& folder, double now) {
  if (!is_run(folder)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} does not contain a run: metrics.jsonl is missing", folder.string()),
        "pass the output_dir of a run; `lockstep runs DIR` lists the runs in a folder");
  }
  RunSummary run;
  run.folder = folder;
  const std::vector<Event> events = read_events(folder);
  for (const Event& event : events) {
    if (event.name == "began") {
      run.began = run.began.value_or(event.time);
      run.model = text_at(event.fields, "model", "?");
      run.plan = text_at(event.fields, "plan", "?");
      run.ranks = whole_at(event.fields, "ranks");
      run.total_steps = whole_at(event.fields, "steps");
    } else if (event.name == "best") {
      run.best = {
          text_at(event.fields, "metric", "?"), number_at(event.fields, "value").value_or(0)};
    }
  }
  run.step = events.empty() || events.back().name == "began" ? 0 : events.back().step;
  read_tail(run);
  read_end(run, events, now);
  if (run.end == End::kRunning && run.step_s && run.total_steps >= run.step) {
    run.seconds_left = static_cast<double>(run.total_steps - run.step) * *run.step_s;
  }
  return run;
}

RunSummary unreadable(const fs::path& folder, const Error& error) {
  RunSummary run;
  run.folder = folder;
  run.end = End::kUnreadable;
  run.reason = first_line(error.message());
  return run;
}

std::vector<fs::path> find_runs(const fs::path& folder) {
  std::error_code problem;
  if (!fs::is_directory(folder, problem)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("the folder {} does not exist", folder.string()),
        "pass a folder that contains the output_dirs of runs");
  }
  std::vector<fs::path> runs;
  if (is_run(folder)) {
    runs.push_back(folder);
  }
  fs::recursive_directory_iterator at(
      folder, fs::directory_options::skip_permission_denied, problem);
  for (; !problem && at != fs::recursive_directory_iterator(); at.increment(problem)) {
    if (!at->is_directory(problem) || at->is_symlink(problem)) {
      continue;
    }
    const std::string name = at->path().filename().string();
    if (name.starts_with("checkpoint-") || name.starts_with('.') || at.depth() >= kDeepest) {
      at.disable_recursion_pending();
    } else if (is_run(at->path())) {
      runs.push_back(at->path());
    }
  }
  std::sort(runs.begin(), runs.end());
  return runs;
}

namespace {

void flatten(
    const config::Value& value,
    const std::string& prefix,
    std::map<std::string, std::string>& values) {
  for (const config::Entry& entry : value.entries) {
    const std::string key = prefix.empty() ? entry.name : prefix + "." + entry.name;
    if (entry.value.is_map() && !entry.value.entries.empty()) {
      flatten(entry.value, key, values);
    } else {
      values[key] = config::to_text(entry.value);
    }
  }
}

}  // namespace

std::map<std::string, std::string> configuration_of(const fs::path& folder) {
  std::map<std::string, std::string> values;
  const fs::path path = folder / "config.yaml";
  if (fs::exists(path)) {
    flatten(config::read_config_file(path), "", values);
  }
  for (const Event& event : read_events(folder, {"act"})) {
    if (text_at(event.fields, "act", "") == "set") {
      values["training.learning_rate"] += fmt::format(
          ", {} after step {}", number_at(event.fields, "learning_rate").value_or(0), event.step);
    }
  }
  return values;
}

}  // namespace lockstep::watch
