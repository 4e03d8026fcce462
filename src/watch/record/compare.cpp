// Compares two runs, and formats the table of runs.
#include "watch/record/compare.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "monitor/progress.h"
#include "watch/record/columns.h"

namespace lockstep::watch {
namespace {

using Values = std::map<std::string, std::string>;

constexpr size_t kWidest = 48;  // maximum characters of a value in a table

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.6g}", *value) : "-";
}

/// Shortens text for a terminal. Truncates it at a character boundary and removes control
/// characters.
std::string shortened(std::string text) {
  if (text.size() > kWidest) {
    size_t end = kWidest - 3;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
      --end;
    }
    text = text.substr(0, end) + "...";
  }
  std::ranges::replace_if(
      text, [](unsigned char letter) { return letter < 0x20 || letter == 0x7F; }, '?');
  return text;
}

/// Returns the last "began" event of a run, or an empty object.
nlohmann::json beginning_of(const RunSummary& run) {
  nlohmann::json found = nlohmann::json::object();
  for (Event& event : read_events(run.folder)) {
    if (event.name == "began" && event.fields.is_object()) {
      found = std::move(event.fields);
    }
  }
  return found;
}

/// Adds the members of an object as text. Their names get `prefix`.
void add_members(Values& values, const nlohmann::json& object, const char* prefix) {
  if (object.is_object()) {
    for (const auto& [name, value] : object.items()) {
      values[prefix + name] = value.is_string() ? value.get<std::string>() : value.dump();
    }
  }
}

Values data_of(const nlohmann::json& beginning) {
  Values values;
  add_members(values, beginning.value("data", nlohmann::json()), "");
  return values;
}

Values program_of(const nlohmann::json& beginning) {
  Values values;
  add_members(values, beginning.value("program", nlohmann::json()), "program ");
  for (const char* const name :
       {"libtorch", "model", "parameters", "ranks", "plan", "device", "host"}) {
    if (const auto found = beginning.find(name); found != beginning.end()) {
      values[name] = found->is_string() ? found->get<std::string>() : found->dump();
    }
  }
  return values;
}

Values curves_of(const RunSummary& run, const MetricsReader& metrics) {
  Values values{
      {"steps", fmt::format("{} of {}", run.step, run.total_steps)},
      {"end", shortened(end_text(run))},
      {"tokens/s", number(run.tokens_per_s)},
      {"goodput", number(run.goodput)}};
  if (run.best) {
    values["best " + run.best->first] = number(run.best->second);
  }
  for (const char* const name : {"loss", "eval_loss"}) {
    const Series& series = metrics.find(name);
    if (series.size() > 0) {
      values[fmt::format("last {}", name)] = number(series.values.back());
      values[fmt::format("least {}", name)] = number(
          *std::min_element(series.values.begin(), series.values.end(), [](double a, double b) {
            return a < b || (std::isnan(b) && !std::isnan(a));
          }));
    }
  }
  return values;
}

void compare_losses(Comparison& result, const Series& first, const Series& second) {
  for (size_t a = 0, b = 0; a < first.size() && b < second.size();) {
    if (first.steps[a] != second.steps[b]) {
      first.steps[a] < second.steps[b] ? ++a : ++b;
      continue;
    }
    ++result.common_losses;
    const bool same = first.values[a] == second.values[b] ||
                      (std::isnan(first.values[a]) && std::isnan(second.values[b]));
    if (!same && !result.first_other_loss) {
      result.first_other_loss = first.steps[a];
    }
    ++a;
    ++b;
  }
}

/// Formats rows of cells. Cells are padded to the width of their column.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string section(const char* title, const std::vector<Difference>& list, const char* nothing) {
  if (list.empty()) {
    return fmt::format("{}: {}\n", title, nothing);
  }
  std::vector<std::vector<std::string>> rows;
  for (const Difference& each : list) {
    rows.push_back({"  " + each.name, shortened(each.first), shortened(each.second)});
  }
  return fmt::format("{}\n{}", title, table(rows));
}

nlohmann::ordered_json json_of(const std::vector<Difference>& list) {
  auto json = nlohmann::ordered_json::object();
  for (const Difference& each : list) {
    json[each.name] = {each.first, each.second};
  }
  return json;
}

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

std::vector<Difference> differences(const Values& first, const Values& second) {
  std::set<std::string> names;
  for (const Values* const values : {&first, &second}) {
    for (const auto& [name, value] : *values) {
      names.insert(name);
    }
  }
  std::vector<Difference> found;
  for (const std::string& name : names) {
    const auto value = [&](const Values& values) {
      const auto at = values.find(name);
      return at == values.end() ? "-" : at->second;
    };
    if (value(first) != value(second)) {
      found.push_back({name, value(first), value(second)});
    }
  }
  return found;
}

Comparison compare_runs(
    const std::filesystem::path& first, const std::filesystem::path& second, double now) {
  Comparison result;
  result.first = summarize(first, now);
  result.second = summarize(second, now);
  Values configurations[] = {configuration_of(first), configuration_of(second)};
  for (Values& values : configurations) {
    values.erase("training.output_dir");
  }
  result.configuration = differences(configurations[0], configurations[1]);
  const nlohmann::json a = beginning_of(result.first), b = beginning_of(result.second);
  result.data = differences(data_of(a), data_of(b));
  result.program = differences(program_of(a), program_of(b));
  MetricsReader metrics[] = {
      MetricsReader(first / "metrics.jsonl"), MetricsReader(second / "metrics.jsonl")};
  for (MetricsReader& reader : metrics) {
    reader.refresh();
  }
  result.curves =
      differences(curves_of(result.first, metrics[0]), curves_of(result.second, metrics[1]));
  compare_losses(result, metrics[0].find("loss"), metrics[1].find("loss"));
  return result;
}

std::string comparison_text(const Comparison& comparison) {
  std::string text = fmt::format(
      "A: {}\nB: {}\n", comparison.first.folder.string(), comparison.second.folder.string());
  const bool is_recorded = comparison.first.began && comparison.second.began;
  const char* const alike = is_recorded ? "the same" : "not recorded";
  text += section("configuration", comparison.configuration, alike);
  text += section("data", comparison.data, alike);
  text += section("program", comparison.program, alike);
  text += section("curves", comparison.curves, "the same");
  if (comparison.common_losses == 0) {
    return text + "no step has a loss in both runs\n";
  }
  return text + (comparison.first_other_loss
                     ? fmt::format(
                           "of {} losses in both runs, the first difference is at step {}\n",
                           comparison.common_losses,
                           *comparison.first_other_loss)
                     : fmt::format(
                           "the {} losses in both runs are identical\n", comparison.common_losses));
}

nlohmann::ordered_json to_json(const RunSummary& run) {
  nlohmann::ordered_json json{
      {"folder", run.folder.string()},
      {"model", run.model},
      {"plan", run.plan},
      {"ranks", run.ranks},
      {"step", run.step},
      {"steps", run.total_steps},
      {"end", end_text(run)},
      {"running", run.end == End::kRunning},
      {"loss", or_null(run.loss)},
      {"learning_rate", or_null(run.learning_rate)},
      {"tokens_per_s", or_null(run.tokens_per_s)},
      {"step_s", or_null(run.step_s)},
      {"began", or_null(run.began)},
      {"goodput", or_null(run.goodput)},
      {"seconds_left", or_null(run.seconds_left)}};
  if (run.best) {
    json["best"] = {{"metric", run.best->first}, {"value", run.best->second}};
  }
  return json;
}

nlohmann::ordered_json to_json(const Comparison& comparison) {
  return {
      {"runs", {to_json(comparison.first), to_json(comparison.second)}},
      {"configuration", json_of(comparison.configuration)},
      {"data", json_of(comparison.data)},
      {"program", json_of(comparison.program)},
      {"curves", json_of(comparison.curves)},
      {"common_losses", comparison.common_losses},
      {"first_other_loss", or_null(comparison.first_other_loss)}};
}

std::string runs_table(const std::vector<RunSummary>& runs, const std::filesystem::path& base) {
  std::vector<std::vector<std::string>> rows{
      {"run", "model", "plan", "steps", "loss", "best", "tokens/s", "goodput", "end"}};
  for (const RunSummary& run : runs) {
    const std::string name = run.folder.lexically_relative(base).string();
    rows.push_back(
        {shortened(name.empty() || name == "." ? run.folder.string() : name),
         shortened(run.model),
         shortened(run.plan),
         run.total_steps > 0 ? fmt::format("{}/{}", run.step, run.total_steps)
                             : fmt::format("{}", run.step),
         run.loss ? fmt::format("{:.4f}", *run.loss) : "-",
         run.best ? fmt::format("{} {:.4f}", run.best->first, run.best->second) : "-",
         run.tokens_per_s ? monitor::format_count(*run.tokens_per_s) : "-",
         run.goodput ? fmt::format("{:.0f}%", 100 * *run.goodput) : "-",
         shortened(end_text(run))});
  }
  return table(rows);
}

}  // namespace lockstep::watch
