// Fits a machine's rates to calibration measurements.
#include "plan/machine.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "plan/cost/cost.h"

namespace lockstep::plan {

namespace {

constexpr double kEndless = 1e30;  // a rate so high that the operation takes no time

struct ProductFit {
  double peak = 0;
  ShortSides sides;
};

ProductFit fit_products(const std::vector<ProductSample>& samples) {
  std::vector<std::vector<double>> rows;
  for (const ProductSample& s : samples) {
    const double share = 2 * s.m * s.n * s.k / s.seconds;
    rows.push_back({share, share / s.m, share / s.n, share / s.k});
  }
  const std::vector<double> x = least_squares(rows);
  const double seconds = std::max(x[0], 1e-18);  // time of one operation
  return {1 / seconds, {x[1] / seconds, x[2] / seconds, x[3] / seconds}};
}

RingRates fit_ring(const std::vector<RingSample>& samples) {
  std::vector<std::vector<double>> rows;
  for (const RingSample& s : samples) {
    // The causal mask keeps half of all position pairs.
    const double passing = s.members * s.heads * s.length;
    rows.push_back({passing * s.length / 2 / s.seconds, passing * s.head_dim / s.seconds});
  }
  const std::vector<double> x = least_squares(rows);
  return x.empty() ? RingRates{} : RingRates{x[0], x[1]};
}

double pass_seconds(const Job& job, const Cluster& cluster) {
  const NodeGroup& node = cluster.groups.front();
  return blocks_seconds(job, cluster, node, blocks_of(job.model)).all() +
         embedding_seconds(job, cluster, node).all() + head_seconds(job, cluster, node).all();
}

// Rates that determine the time of a pass. Each is a column of the equations.
enum MachineColumn {
  kAttention,
  kMemory,
  kActivation,
  kSoftmax,
  kAttention32,
  kMemory32,
  kActivation32,
  kSoftmax32,
  kKernel,
  kDropout,
  kMachineColumns
};

// Computes the coefficients of the inverse rates in the time of a pass. Each is the time with one
// rate set to 1 and all others to kEndless, minus the time with all rates set to kEndless.
class PassColumns {
 public:
  explicit PassColumns(const Device& device) : endless_(device) {
    for (Efficiency* e : {&endless_.efficiency, &endless_.efficiency32}) {
      e->attention = e->memory = kEndless;
      e->activation = e->softmax = 1;
    }
    endless_.kernel_seconds = endless_.dropout_seconds = 0;
  }

  // Returns the coefficients of the equation divided by its right side, which is the measured time
  // minus the products.
  std::vector<double> row(const PassSample& sample) const {
    const double products = pass(sample.job, [](Device&) {});
    const double rest = std::max(sample.seconds - products, kLeastRest * sample.seconds);
    const bool wide = sample.job.precision == Precision::kFloat32;
    const auto of = [&](Device& d) -> Efficiency& { return wide ? d.efficiency32 : d.efficiency; };
    const auto part = [&](auto change) { return pass(sample.job, change) - products; };
    std::vector<double> row(kMachineColumns, 0);
    row[wide ? kAttention32 : kAttention] = part([&](Device& d) { of(d).attention = 1; });
    // Memory-limited kernels: sets the memory rate to 1 and all but one of the fractions to
    // kEndless.
    const auto over_memory = [&](double activation, double softmax) {
      return part([&](Device& d) {
        of(d).memory = 1;
        of(d).activation = activation;
        of(d).softmax = softmax;
      });
    };
    const double memory = over_memory(kEndless, kEndless);
    row[wide ? kMemory32 : kMemory] = memory;
    row[wide ? kActivation32 : kActivation] = over_memory(1, kEndless) - memory;
    row[wide ? kSoftmax32 : kSoftmax] = over_memory(kEndless, 1) - memory;
    row[kKernel] = part([](Device& d) { d.kernel_seconds = 1; });
    row[kDropout] = part([](Device& d) { d.dropout_seconds = 1; });
    for (double& value : row) {
      value /= rest;
    }
    return row;
  }

 private:
  static constexpr double kLeastRest = 0.02;  // lower bound on the fraction of a pass outside
                                              // products, in case products were measured too slow

  template <class Change>
  double pass(const Job& job, Change change) const {
    Device changed = endless_;
    change(changed);
    return pass_seconds(job, uniform_cluster(changed, 1));
  }

  Device endless_;
};

Efficiency pass_rates(double attention, double memory, double activation, double softmax) {
  const auto rate = [](double inverse) {
    return std::clamp(1 / std::max(inverse, 1e-9), 1e-2, 1e2);
  };
  Efficiency e{};
  e.matrix16 = 1;
  e.attention = rate(attention);
  e.memory = rate(memory);
  const auto over_memory = [&](double inverse) {
    return std::clamp(1 / std::max(inverse * e.memory, 1e-9), 1e-3, 1e3);
  };
  e.activation = over_memory(activation);
  e.softmax = over_memory(softmax);
  return e;
}

// Returns the 90th percentile of the relative errors, corrected for overfitting: the fit follows a
// small sample too closely, in proportion to the number of rates per sample.
double error_of(const std::vector<PassSample>& samples, const Device& device) {
  const Cluster cluster = uniform_cluster(device, 1);
  std::vector<double> errors;
  for (const PassSample& sample : samples) {
    errors.push_back(std::abs(pass_seconds(sample.job, cluster) / sample.seconds - 1));
  }
  std::sort(errors.begin(), errors.end());
  const auto passes = static_cast<double>(samples.size());
  const double freedom = std::max(1.0, passes - static_cast<double>(kMachineColumns));
  return errors[static_cast<size_t>(0.9 * (passes - 1))] * std::sqrt(passes / freedom);
}

void fit_passes(const std::vector<PassSample>& samples, Device& device) {
  if (samples.empty()) {
    return;
  }
  const PassColumns columns(device);
  std::vector<std::vector<double>> rows;
  for (const PassSample& sample : samples) {
    rows.push_back(columns.row(sample));
  }
  const std::vector<double> x = least_squares(rows);
  device.efficiency = pass_rates(x[kAttention], x[kMemory], x[kActivation], x[kSoftmax]);
  device.efficiency32 = pass_rates(x[kAttention32], x[kMemory32], x[kActivation32], x[kSoftmax32]);
  device.kernel_seconds = x[kKernel];
  device.dropout_seconds = x[kDropout];
  device.time_error = error_of(samples, device);
}

}  // namespace

std::vector<double> least_squares(const std::vector<std::vector<double>>& rows) {
  if (rows.empty()) {
    return {};
  }
  const size_t count = rows.front().size();
  std::vector<double> x(count, 0);
  std::vector<double> left(rows.size(), 1);  // 1 - row · x
  for (int round = 0; round < 5000; ++round) {
    for (size_t j = 0; j < count; ++j) {
      double square = 0;
      double along = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        square += rows[i][j] * rows[i][j];
        along += rows[i][j] * left[i];
      }
      if (square == 0) {
        continue;
      }
      const double next = std::max(0.0, x[j] + along / square);
      for (size_t i = 0; i < rows.size(); ++i) {
        left[i] -= (next - x[j]) * rows[i][j];
      }
      x[j] = next;
    }
  }
  return x;
}

NodeGroup fit_machine(const MachineSamples& samples) {
  NodeGroup node;
  node.name = "here";
  node.devices_per_node = samples.ranks;
  Device& device = node.device;
  device = find_device("cpu");
  device.name = "this-machine";
  device.measured = true;
  device.memory_bytes = samples.memory_bytes > 0 ? samples.memory_bytes : device.memory_bytes;
  device.memory_bandwidth = samples.copy_bandwidth;
  const ProductFit products16 = fit_products(samples.products16);
  const ProductFit products32 = fit_products(samples.products32);
  device.flops16 = products16.peak;
  device.short16 = products16.sides;
  device.flops32 = products32.peak;
  device.short32 = products32.sides;
  device.efficiency = device.efficiency32 = {};
  device.ring16 = fit_ring(samples.ring16);
  device.ring32 = fit_ring(samples.ring32);
  node.spread_seconds = samples.spread;
  fit_passes(samples.passes, device);
  if (samples.update_bandwidth > 0) {
    device.efficiency.update =
        samples.update_bandwidth / (device.memory_bandwidth * device.efficiency.memory);
  }
  node.peer_bandwidth = device.peer_bandwidth;
  node.network_bandwidth = device.node_network;
  if (!samples.reductions.empty()) {
    // Same model as in all_reduce_seconds(): a ring moves 2 (n - 1) / n of the bytes in 2 (n - 1)
    // steps.
    std::vector<std::vector<double>> rows;
    for (const ReduceSample& s : samples.reductions) {
      rows.push_back(
          {2 * s.bytes * (s.members - 1) / s.members / s.seconds, 2 * (s.members - 1) / s.seconds});
    }
    const std::vector<double> x = least_squares(rows);
    node.peer_bandwidth = 1 / std::max(x[0], 1e-15);
    node.link_latency = std::max(x[1], 1e-9);
  }
  return node;
}

std::string machine_yaml(const NodeGroup& node, const std::string& comment) {
  const Device& d = node.device;
  const auto sides = [](const ShortSides& s) {
    return fmt::format("[{:.3f}, {:.3f}, {:.3f}]", s.rows, s.columns, s.inner);
  };
  std::string text = fmt::format(
      "# {}\nnodes:\n  - name: {}\n    count: 1\n    devices: {}\n    peer_gb_s: {:.4f}\n    "
      "latency_us: {:.3f}\n    spread_us: {:.3f}\n    device:\n      like: cpu\n      name: {}\n",
      comment,
      node.name,
      node.devices_per_node,
      node.peer_bandwidth / 1e9,
      node.link_latency * 1e6,
      node.spread_seconds * 1e6,
      d.name);
  const auto line = [&](const char* key, const auto& value) {
    text += fmt::format("      {}: {}\n", key, value);
  };
  const auto number = [&](const char* key, double value) {
    line(key, fmt::format("{:.5g}", value));
  };
  number("memory_gb", d.memory_bytes / 1e9);
  number("tflops16", d.flops16 / 1e12);
  line("short_sides16", sides(d.short16));
  number("tflops32", d.flops32 / 1e12);
  line("short_sides32", sides(d.short32));
  number("bandwidth_gb_s", d.memory_bandwidth / 1e9);
  number("matrix_efficiency", 1);
  number("attention_efficiency", d.efficiency.attention);
  number("memory_efficiency", d.efficiency.memory);
  number("activation_efficiency", d.efficiency.activation);
  number("softmax_efficiency", d.efficiency.softmax);
  number("attention_efficiency32", d.efficiency32.attention);
  number("memory_efficiency32", d.efficiency32.memory);
  number("activation_efficiency32", d.efficiency32.activation);
  number("softmax_efficiency32", d.efficiency32.softmax);
  number("update_efficiency", d.efficiency.update);
  number("kernel_us", d.kernel_seconds * 1e6);
  number("dropout_ns", d.dropout_seconds * 1e9);
  number("time_error", d.time_error);
  const auto ring = [&](const char* key, const RingRates& rates) {
    line(key, fmt::format("[{:.4g}, {:.4g}]", rates.score * 1e9, rates.number * 1e9));
  };
  ring("ring16_ns", d.ring16);
  ring("ring32_ns", d.ring32);
  return text;
}

}  // namespace lockstep::plan
