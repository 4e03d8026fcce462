#include "plan/machines/machine.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "plan/cost.h"

namespace lockstep::plan {

namespace {

constexpr double kEndless = 1e30;  // a rate that costs nothing

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
  const double seconds = std::max(x[0], 1e-18);  // of an operation
  return {1 / seconds, {x[1] / seconds, x[2] / seconds, x[3] / seconds}};
}

double pass_seconds(const Job& job, const Cluster& cluster) {
  const NodeGroup& node = cluster.groups.front();
  return block_seconds(job, cluster, node).all() * static_cast<double>(job.model.layers) +
         embedding_seconds(job, cluster, node).all() + head_seconds(job, cluster, node).all();
}

// What of a pass is in proportion to the inverse of a rate: the pass with that rate 1 and all
// others endless, less the pass with all endless.
void fit_passes(const std::vector<PassSample>& samples, Device& device) {
  if (samples.empty()) {
    return;
  }
  Device endless = device;
  endless.efficiency.attention = endless.efficiency.memory = kEndless;
  endless.efficiency.softmax = 1;
  endless.kernel_seconds = endless.dropout_seconds = 0;
  const auto with = [&](auto change) {
    Device changed = endless;
    change(changed);
    Cluster cluster = uniform_cluster(changed, 1);
    return cluster;
  };
  const Cluster none = with([](Device&) {});
  const Cluster attention = with([](Device& d) { d.efficiency.attention = 1; });
  const Cluster memory = with([](Device& d) {
    d.efficiency.memory = 1;
    d.efficiency.softmax = kEndless;
  });
  const Cluster softmax = with([](Device& d) { d.efficiency.memory = 1; });
  const Cluster kernel = with([](Device& d) { d.kernel_seconds = 1; });
  const Cluster dropout = with([](Device& d) { d.dropout_seconds = 1; });
  std::vector<std::vector<double>> rows;
  for (const PassSample& sample : samples) {
    const double products = pass_seconds(sample.job, none);
    const double rest = std::max(sample.seconds - products, 0.02 * sample.seconds);
    const double of_memory = pass_seconds(sample.job, memory) - products;
    const double of_softmax = pass_seconds(sample.job, softmax) - products - of_memory;
    rows.push_back(
        {(pass_seconds(sample.job, attention) - products) / rest,
         of_memory / rest,
         of_softmax / rest,
         (pass_seconds(sample.job, kernel) - products) / rest,
         (pass_seconds(sample.job, dropout) - products) / rest});
  }
  const std::vector<double> x = least_squares(rows);
  const auto rate = [](double inverse) {
    return std::clamp(1 / std::max(inverse, 1e-9), 1e-2, 1.0);
  };
  device.efficiency.attention = rate(x[0]);
  device.efficiency.memory = rate(x[1]);
  device.efficiency.softmax =
      std::clamp(1 / std::max(x[2] * device.efficiency.memory, 1e-9), 1e-3, 1e3);
  device.kernel_seconds = x[3];
  device.dropout_seconds = x[4];
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
  device.efficiency = {};
  fit_passes(samples.passes, device);
  if (samples.update_bandwidth > 0) {
    device.efficiency.update =
        samples.update_bandwidth / (device.memory_bandwidth * device.efficiency.memory);
  }
  node.peer_bandwidth = device.peer_bandwidth;
  node.network_bandwidth = device.node_network;
  if (!samples.reductions.empty()) {
    // As all_reduce_seconds has it: a ring moves 2 (n - 1) / n of the bytes and turns 2 (n - 1)
    // times.
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
  return fmt::format(
      "# {}\nnodes:\n  - name: {}\n    count: 1\n    devices: {}\n    peer_gb_s: {:.4f}\n    "
      "latency_us: {:.3f}\n    device:\n      like: cpu\n      name: {}\n      memory_gb: {:.2f}\n "
      "     tflops16: {:.5f}\n      short_sides16: {}\n      tflops32: {:.5f}\n      "
      "short_sides32: "
      "{}\n      bandwidth_gb_s: {:.3f}\n      matrix_efficiency: 1\n      attention_efficiency: "
      "{:.4f}\n      memory_efficiency: {:.4f}\n      softmax_efficiency: {:.4f}\n      "
      "update_efficiency: {:.4f}\n      kernel_us: {:.3f}\n      "
      "dropout_ns: {:.4f}\n",
      comment,
      node.name,
      node.devices_per_node,
      node.peer_bandwidth / 1e9,
      node.link_latency * 1e6,
      d.name,
      d.memory_bytes / 1e9,
      d.flops16 / 1e12,
      sides(d.short16),
      d.flops32 / 1e12,
      sides(d.short32),
      d.memory_bandwidth / 1e9,
      d.efficiency.attention,
      d.efficiency.memory,
      d.efficiency.softmax,
      d.efficiency.update,
      d.kernel_seconds * 1e6,
      d.dropout_seconds * 1e9);
}

}  // namespace lockstep::plan
