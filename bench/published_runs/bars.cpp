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

namespace {

struct Pair {
  double apart;  // the faster over the slower, as predicted, less 1
  bool right;
};

std::vector<Pair> pairs_of(const std::vector<HeldOut>& held) {
  std::vector<Pair> pairs;
  for (const HeldOut& h : held) {
    for (size_t i = 0; i < h.sweeps.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (h.sweeps[i] == h.sweeps[j]) {
          const double predicted = h.rates[i] / h.rates[j];
          const double measured = predicted * h.truths[j] / h.truths[i];
          pairs.push_back(
              {std::max(predicted, 1 / predicted) - 1, (predicted - 1) * (measured - 1) > 0});
        }
      }
    }
  }
  return pairs;
}

}  // namespace

Order order_that_holds(const std::vector<HeldOut>& held) {
  const std::vector<Pair> pairs = pairs_of(held);
  const auto count = [&](double from, double to, bool right) {
    return static_cast<size_t>(std::ranges::count_if(pairs, [&](const Pair& pair) {
      return pair.apart >= from && pair.apart < to && (pair.right || !right);
    }));
  };
  constexpr double kStep = 0.005;
  Order order;
  for (int step = 100; step > 0; --step) {
    const double apart = kStep * step;
    const auto all = static_cast<double>(count(apart, 2 * apart, false));
    if (static_cast<double>(count(apart, 2 * apart, true)) < kHeld * all) {
      break;
    }
    order.apart = apart;
  }
  constexpr double kAny = 1e30;
  order.nearer = count(0, order.apart, false);
  order.nearer_right = count(0, order.apart, true);
  order.further = count(order.apart, kAny, false);
  order.further_right = count(order.apart, kAny, true);
  return order;
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

std::string error_bars_source(const ErrorBarsTable& table) {
  const auto bars = [](const ErrorBars& b) {
    return fmt::format("{{.least = {:.3f}, .most = {:.3f}}}", b.least, b.most);
  };
  std::string text =
      "// Made by `published_runs RUNS.csv --leave-one-out FILE --write FILE`: each system's runs "
      "by "
      "a fit\n// that did not see them. Do not edit: run it again.\n#include "
      "\"plan/machines/error_bars.h\"\n\nnamespace lockstep::plan {\n\nconst ErrorBarsTable& "
      "published_error_bars() {\n  static const ErrorBarsTable table{\n";
  text += fmt::format(
      "      .time = {},\n      .memory = {},\n      .order = {:.3f}}};\n",
      bars(table.time),
      bars(table.memory),
      table.order);
  return text + "  return table;\n}\n\n}  // namespace lockstep::plan\n";
}

std::string held_text(const HeldOut& held) {
  std::string text;
  for (size_t i = 0; i < held.truths.size(); ++i) {
    text += fmt::format(
        "{:.5g} {:.5g} {:.6g} {}\t{}\n",
        held.truths[i],
        held.unknown.at(i),
        held.rates.at(i),
        held.system,
        held.sweeps.at(i));
  }
  return text;
}

std::vector<HeldOut> read_held(const std::filesystem::path& path) {
  std::vector<HeldOut> held;
  if (!std::filesystem::exists(path)) {
    return held;
  }
  std::istringstream lines(read_file(path));
  double truth = 0, unknown = 0, rate = 0;
  std::string system, sweep;
  while (lines >> truth >> unknown >> rate && std::getline(lines >> std::ws, system, '\t') &&
         std::getline(lines, sweep)) {
    if (held.empty() || held.back().system != system) {
      held.push_back({system, {}, {}, {}, {}});
    }
    held.back().rates.push_back(rate);
    held.back().sweeps.push_back(sweep);
    held.back().truths.push_back(truth);
    held.back().unknown.push_back(unknown);
  }
  return held;
}

}  // namespace lockstep::plan
