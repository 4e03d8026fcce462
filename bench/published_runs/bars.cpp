#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "base/file.h"
#include "base/format.h"
#include "published_runs/validate.h"

namespace lockstep::plan {

namespace {

constexpr double kHeld = 0.9;  // of the runs that bars are to hold for

// The smallest value that has `share` of the weight at or below it.
double weighted_quantile(std::vector<std::pair<double, double>> values, double share) {
  std::sort(values.begin(), values.end());
  double all = 0;
  for (const auto& [value, weight] : values) {
    all += weight;
  }
  double sum = 0;
  for (const auto& [value, weight] : values) {
    sum += weight;
    if (sum >= share * all * (1 - 1e-12)) {
      return value;
    }
  }
  return values.empty() ? 1 : values.back().first;
}

size_t inside(const HeldOut& held, const ErrorBars& bars) {
  return static_cast<size_t>(std::ranges::count_if(
      held.truths, [&](double truth) { return truth >= bars.least && truth <= bars.most; }));
}

}  // namespace

double median_error(const std::vector<double>& truths) {
  std::vector<std::pair<double, double>> errors;
  for (const double truth : truths) {
    errors.emplace_back(std::abs(1 / truth - 1), 1);
  }
  return errors.empty() ? 0 : weighted_quantile(std::move(errors), 0.5);
}

ErrorBars bars_of(const std::vector<HeldOut>& held, double level) {
  std::vector<std::pair<double, double>> truths;
  for (const HeldOut& h : held) {
    for (const double truth : h.truths) {
      truths.emplace_back(truth, 1 / std::sqrt(static_cast<double>(h.truths.size())));
    }
  }
  // A prediction without error is always within.
  return {
      std::min(1.0, weighted_quantile(truths, (1 - level) / 2)),
      std::max(1.0, weighted_quantile(truths, (1 + level) / 2))};
}

Holding bars_that_hold(const std::vector<HeldOut>& held) {
  Holding result;
  for (result.level = 0.8; result.level < 1; result.level += 0.005) {
    result.inside = result.runs = 0;
    for (size_t i = 0; i < held.size(); ++i) {
      std::vector<HeldOut> others = held;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      result.inside += inside(held[i], bars_of(others, result.level));
      result.runs += held[i].truths.size();
    }
    if (static_cast<double>(result.inside) >= kHeld * static_cast<double>(result.runs)) {
      break;
    }
  }
  result.bars = bars_of(held, result.level);
  return result;
}

std::vector<HeldOut> memory_by_system(const std::vector<Run>& runs) {
  std::map<std::string, HeldOut> systems;
  for (const Comparison& c : validate(runs).comparisons) {
    if (c.measured_bytes && c.bytes > 0) {
      HeldOut& held = systems[c.prepared.system];
      held.system = c.prepared.system;
      held.truths.push_back(*c.measured_bytes / c.bytes);
    }
  }
  std::vector<HeldOut> result;
  for (auto& [system, held] : systems) {
    result.push_back(std::move(held));
  }
  return result;
}

std::string error_bars_source(const ErrorBars& time, const ErrorBars& memory) {
  const auto bars = [](const ErrorBars& b) {
    return fmt::format("{{.least = {:.3f}, .most = {:.3f}}}", b.least, b.most);
  };
  std::string text =
      "// Made by `published_runs RUNS.csv --leave-one-out FILE --write FILE`: each system's runs "
      "by "
      "a fit\n// that did not see them. Do not edit: run it again.\n#include "
      "\"plan/machines/error_bars.h\"\n\nnamespace lockstep::plan {\n\nconst ErrorBarsTable& "
      "published_error_bars() {\n  static const ErrorBarsTable table{\n";
  text += fmt::format("      .time = {}, .memory = {}}};\n", bars(time), bars(memory));
  return text + "  return table;\n}\n\n}  // namespace lockstep::plan\n";
}

std::string held_text(const HeldOut& held) {
  std::string text;
  for (size_t i = 0; i < held.truths.size(); ++i) {
    text += fmt::format("{:.5g} {:.5g} {}\n", held.truths[i], held.unknown.at(i), held.system);
  }
  return text;
}

std::vector<HeldOut> read_held(const std::filesystem::path& path) {
  std::vector<HeldOut> held;
  if (!std::filesystem::exists(path)) {
    return held;
  }
  std::istringstream lines(read_file(path));
  double truth = 0, unknown = 0;
  for (std::string system; lines >> truth >> unknown && std::getline(lines >> std::ws, system);) {
    if (held.empty() || held.back().system != system) {
      held.push_back({system, {}, {}});
    }
    held.back().truths.push_back(truth);
    held.back().unknown.push_back(unknown);
  }
  return held;
}

}  // namespace lockstep::plan
