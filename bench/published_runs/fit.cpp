#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "base/counter_random.h"
#include "base/format.h"
#include "published_runs/validate.h"

namespace lockstep::plan {

namespace {

// A starting figure is doubted by so much (of its logarithm); being off by that costs as much as an
// error of kPull in one run.
constexpr double kDoubt = 0.4, kPull = 0.012;

struct Parameter {
  std::string name;
  std::string device;  // whose runs it is of; empty: all
  double* value;
  double start, least, most;
};

struct Target {
  Prepared prepared;
  Prepared nameless;  // nothing of its system is known
  Cluster cluster;
  double seconds = 0;
  double weight = 1;
  std::string fingerprint;
  bool lent = false;
};

double predicted(Target& target, const Calibration& calibration) {
  target.cluster.physics = calibration.physics;
  const auto found = calibration.devices.find(calibrated_as(target.prepared.device.name));
  target.cluster.groups[0].device.efficiency =
      found == calibration.devices.end() ? usual_efficiency(target.prepared.device) : found->second;
  return simulate(target.prepared.job, target.cluster).step_seconds * target.prepared.slowdown;
}

class Fitter {
 public:
  Fitter(std::vector<Target> targets, Calibration& calibration)
      : targets_(std::move(targets)),
        calibration_(calibration) {
    Physics& p = calibration_.physics;
    p = Physics{};
    add("tile_seconds", p.tile_seconds, 1e-7, 6e-6);
    add("wave_waste", p.wave_waste, 0.1, 1);
    add("message_seconds", p.message_seconds, 2e-5, 5e-3);
    add("power_exponent", p.power_exponent, 0.2, 1);
    add("block_scaled", p.block_scaled, 0.8, 1);
    add("tensor_exposed", p.tensor_exposed, 0.2, 1);
    add("misaligned", p.misaligned, 0.3, 1);
    add("unaligned", p.unaligned, 0.2, 1);
    add("kernel_seconds", p.kernel_seconds, 1e-6, 1e-5);
    add("host_seconds", p.host_seconds, 1e-3, 5e-2);
    add("link_efficiency", p.link_efficiency, 0.4, 0.95);
    add("network_efficiency", p.network_efficiency, 0.4, 0.95);
    add("link_latency", p.link_latency, 1e-6, 3e-5);
    add("network_latency", p.network_latency, 3e-6, 5e-5);
    add("early_libraries", p.early_libraries, 0.6, 1);
    add("straggler", p.straggler, 0.001, 0.05);
    add("contention", p.contention, 0.01, 0.5);
    add("overlap_power", p.overlap_power, 2, 20);
    add("step_seconds", p.step_seconds, 1e-4, 0.05);
    for (const Target& target : targets_) {
      const std::string name = calibrated_as(target.prepared.device.name);
      if (calibration_.devices.count(name) == 0) {
        calibration_.devices[name] = usual_efficiency(find_device(name));
      }
    }
    for (auto& [name, efficiency] : calibration_.devices) {
      add(" matrix16", efficiency.matrix16, 0.4, 1.1, name);  // clocks go above the sheet's
      add(" matrix8", efficiency.matrix8, 0.3, 1.1, name);
      // Kernels of 1.6 times this rate are known, and none reaches more than three quarters of a
      // peak.
      const bool recent = find_device(name).flops16 > 9e14;
      add(" attention", efficiency.attention, 0.2, recent ? 0.47 : 0.85, name);
      add(" memory", efficiency.memory, 0.4, 1, name);
    }
    terms_.resize(targets_.size());
    loss("");
  }

  // After parameters of `device` changed (empty: of any): only its runs are predicted anew.
  double loss(const std::string& device) {
    for (size_t i = 0; i < targets_.size(); ++i) {
      Target& target = targets_[i];
      if (!device.empty() && device != calibrated_as(target.prepared.device.name)) {
        continue;
      }
      const double error = std::abs(std::log(predicted(target, calibration_) / target.seconds));
      terms_[i] = (error < 0.02 ? error * error / 0.04 + 0.01 : error) * target.weight;
    }
    double sum = std::accumulate(terms_.begin(), terms_.end(), 0.0);
    for (const Parameter& parameter : parameters_) {
      const double off = std::log(*parameter.value / parameter.start) / kDoubt;
      sum += kPull * off * off;
    }
    return sum;
  }

  double coordinate_steps() {
    double best = loss("");
    for (double step = 0.2; step > 0.005;) {
      bool better = false;
      for (Parameter& parameter : parameters_) {
        better = try_factor(parameter, 1 + step, best) ||
                 try_factor(parameter, 1 / (1 + step), best) || better;
      }
      step *= better ? 1 : 0.6;
    }
    return best;
  }

  // Two to four parameters at a time: ridges, on which one figure makes up for another, are not
  // seen along axes.
  double joint_steps(int count) {
    double best = loss("");
    for (int i = 0; i < count; ++i) {
      const uint64_t key = derive_key(20240601, static_cast<uint64_t>(i));
      std::vector<double> before;
      for (const Parameter& parameter : parameters_) {
        before.push_back(*parameter.value);
      }
      const uint64_t changed = 2 + random_bits(key, 0) % 3;
      const double size = 0.15 * random_uniform(key, 1) + 0.005;
      for (uint64_t c = 0; c < changed; ++c) {
        Parameter& parameter = parameters_[random_bits(key, 10 + c) % parameters_.size()];
        const double direction = random_uniform(key, 20 + c) * 2 - 1;
        *parameter.value = std::clamp(
            *parameter.value * std::exp(direction * size), parameter.least, parameter.most);
      }
      const std::vector<double> terms = terms_;
      const double now = loss("");
      if (now < best) {
        best = now;
        continue;
      }
      terms_ = terms;
      for (size_t p = 0; p < parameters_.size(); ++p) {
        *parameters_[p].value = before[p];
      }
    }
    return best;
  }

 private:
  void add(
      const std::string& name,
      double& value,
      double least,
      double most,
      const std::string& device = "") {
    parameters_.push_back({device + name, device, &value, value, least, most});
  }

  bool try_factor(Parameter& parameter, double factor, double& best) {
    const double before = *parameter.value;
    *parameter.value = std::clamp(before * factor, parameter.least, parameter.most);
    if (*parameter.value == before) {
      return false;
    }
    const std::vector<double> terms = terms_;
    const double now = loss(parameter.device);
    if (now < best - 1e-9) {
      best = now;
      return true;
    }
    *parameter.value = before;
    terms_ = terms;
    return false;
  }

  std::vector<Target> targets_;
  std::vector<double> terms_;  // of the loss, by target
  Calibration& calibration_;
  std::vector<Parameter> parameters_;
};

}  // namespace

namespace {

using Tell = std::function<void(const std::string&)>;

// A schedule that is searched for takes as long to find as a hundred runs to predict: here the one
// by hand that holds as much stands for it.
void by_hand(Job& job) {
  if (job.greedy_held > 0) {
    job.schedule =
        job.greedy_held > job.mesh.pipeline ? schedule::Kind::kZbH2 : schedule::Kind::kZbH1;
    job.greedy_held = 0;
  }
}

// Every run with a measured time that can be predicted; `lent`: those that lend themselves.
std::vector<Target> targets_of(const std::vector<Run>& runs) {
  const std::vector<bool> lent = lent_to_calibration(runs);
  std::vector<Target> targets;
  for (size_t i = 0; i < runs.size(); ++i) {
    Target target;
    target.prepared = prepare(runs[i]);
    if (!target.prepared.skipped.empty() || !target.prepared.contradiction.empty()) {
      continue;
    }
    target.seconds = measured_seconds(runs[i], target.prepared.job).value_or(0);
    if (target.seconds > 0) {
      Run nameless = runs[i];
      nameless.cells["system"] = "Abacus";
      target.nameless = prepare(nameless);
      if (!target.nameless.skipped.empty()) {
        target.nameless = target.prepared;
      }
      target.cluster = cluster_of(target.prepared);
      by_hand(target.prepared.job);
      target.fingerprint = runs[i].fingerprint();
      target.lent = lent[i];
      targets.push_back(std::move(target));
    }
  }
  return targets;
}

struct Effort {
  int rounds = 3;
  int joint_steps = 3000;  // in each
};

// To those of `all` that lend themselves, but for the runs of one system.
Calibration fit(
    const std::vector<Target>& all, const std::string& without, Effort effort, const Tell& tell) {
  std::vector<Target> targets;
  std::map<std::string, int> of_system;
  Calibration calibration;
  for (const Target& target : all) {
    if (target.lent && target.prepared.system != without) {
      ++of_system[target.prepared.system];
      calibration.lent.push_back(target.fingerprint);
      targets.push_back(target);
    }
  }
  for (Target& target : targets) {
    target.weight = 1 / std::sqrt(static_cast<double>(of_system[target.prepared.system]));
  }
  for (const auto& [system, count] : of_system) {
    calibration.systems.push_back(system);
  }
  tell(fmt::format("{} configurations", targets.size()));
  Fitter fitter(std::move(targets), calibration);
  tell(fmt::format("loss {:.4f} at the start", fitter.loss("")));
  for (int round = 0; round < effort.rounds; ++round) {
    const double axes = fitter.coordinate_steps();
    const double joint = fitter.joint_steps(effort.joint_steps);
    tell(fmt::format("loss {:.4f} after coordinate steps, {:.4f} after joint ones", axes, joint));
  }
  return calibration;
}

}  // namespace

Calibration fit_calibration(const std::vector<Run>& runs, const Tell& tell) {
  return fit(targets_of(runs), "", {}, tell);
}

std::vector<HeldOut> leave_one_system_out(
    const std::vector<Run>& runs, std::vector<HeldOut> known, const Told& tell) {
  const std::vector<Target> targets = targets_of(runs);
  std::map<std::string, std::vector<Target>> by_system;
  for (const Target& target : targets) {
    by_system[target.prepared.system].push_back(target);
  }
  std::vector<HeldOut> result = std::move(known);
  for (auto& [system, its_runs] : by_system) {
    if (std::ranges::any_of(result, [&](const HeldOut& h) { return h.system == system; })) {
      continue;
    }
    const Calibration calibration =
        fit(targets, system, {.rounds = 1, .joint_steps = 300}, [](const std::string& /*line*/) {});
    HeldOut held{system, {}, {}, {}, {}};
    for (Target& target : its_runs) {
      if (!target.prepared.is_mixture) {
        const double seconds = predicted(target, calibration);
        held.truths.push_back(target.seconds / seconds);
        held.rates.push_back(
            target.prepared.job.step_tokens() / seconds / target.prepared.job.mesh.ranks());
        held.sweeps.push_back(sweep_of(target.prepared));
        Target unknown = target;
        unknown.prepared = target.nameless;
        by_hand(unknown.prepared.job);
        unknown.cluster = cluster_of(unknown.prepared);
        held.unknown.push_back(target.seconds / predicted(unknown, calibration));
      }
    }
    if (!held.truths.empty()) {
      tell(held);
      result.push_back(std::move(held));
    }
  }
  return result;
}

std::string calibration_source(const Calibration& calibration) {
  const Physics& p = calibration.physics;
  std::string text =
      "// Made by `published_runs RUNS.csv --fit --write FILE` from a fifth of the published "
      "runs (which: see\n"
      "// lent_to_calibration in bench/published_runs/validate.h). Do not edit: run it again.\n"
      "#include \"plan/machines/calibration.h\"\n\nnamespace lockstep::plan {\n\n"
      "const Calibration& calibration() {\n  static const Calibration table = {\n      .physics "
      "=\n          {\n";
  const auto line = [&](const char* name, double value) {
    text += fmt::format("              .{} = {:.4g},\n", name, value);
  };
  line("tile_seconds", p.tile_seconds);
  line("wave_waste", p.wave_waste);
  line("misaligned", p.misaligned);
  line("unaligned", p.unaligned);
  line("kernel_seconds", p.kernel_seconds);
  line("host_seconds", p.host_seconds);
  line("message_seconds", p.message_seconds);
  line("power_exponent", p.power_exponent);
  line("block_scaled", p.block_scaled);
  line("tensor_exposed", p.tensor_exposed);
  line("link_efficiency", p.link_efficiency);
  line("network_efficiency", p.network_efficiency);
  line("link_latency", p.link_latency);
  line("network_latency", p.network_latency);
  line("early_libraries", p.early_libraries);
  line("straggler", p.straggler);
  line("contention", p.contention);
  line("overlap_power", p.overlap_power);
  line("step_seconds", p.step_seconds);
  text += "          },\n      .devices =\n          {\n";
  for (const auto& [name, e] : calibration.devices) {
    text += fmt::format(
        "              {{\"{}\",\n               {{.matrix16 = {:.4g}, .matrix8 = {:.4g}, "
        ".attention = {:.4g}, .memory = {:.4g}}}}},\n",
        name,
        e.matrix16,
        e.matrix8,
        e.attention,
        e.memory);
  }
  const auto list = [&](const char* name, const std::vector<std::string>& words) {
    text += fmt::format("      .{} =\n          {{\n", name);
    for (const std::string& word : words) {
      text += fmt::format("              \"{}\",\n", word);
    }
    text += "          },\n";
  };
  text += "          },\n";
  list("systems", calibration.systems);
  list("lent", calibration.lent);
  return text + "  };\n  return table;\n}\n\n}  // namespace lockstep::plan\n";
}

}  // namespace lockstep::plan
