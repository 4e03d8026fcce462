// Tests fitting the rates of a machine.
#include "plan/machine.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "model/model_config.h"
#include "plan/cost/kernels.h"
#include "plan/simulate.h"

namespace lockstep::plan {
namespace machine_test {

TEST(LeastSquares, FindsWhatMadeTheRows) {
  // 2 x + 3 y = 1 and x + 4 y = 1, and a third equation between them.
  const std::vector<double> x = least_squares({{2, 3}, {1, 4}, {1.5, 3.5}});
  EXPECT_NEAR(x[0], 0.2, 1e-6);
  EXPECT_NEAR(x[1], 0.2, 1e-6);
  // The unconstrained optimum has y = -1; the result is never negative.
  EXPECT_EQ(least_squares({{1, 0.1}, {2, 1}})[1], 0);
  EXPECT_TRUE(least_squares({}).empty());
}

// A machine that matches the cost model exactly.
NodeGroup made_up() {
  NodeGroup node;
  node.devices_per_node = 2;
  node.device = find_device("cpu");
  Device& d = node.device;
  d.measured = true;
  d.flops16 = 2e11;
  d.flops32 = 8e10;
  d.short16 = {12, 20, 40};
  d.short32 = {3, 5, 8};
  d.memory_bandwidth = 2e10;
  d.efficiency = {
      .attention = 0.2, .memory = 0.5, .activation = 0.2, .softmax = 0.6, .update = 1.5};
  d.efficiency32 = {.attention = 0.4, .memory = 0.3, .activation = 0.7, .softmax = 0.9};
  d.ring16 = {.score = 5e-9, .number = 2e-9};
  d.ring32 = {.score = 6e-9, .number = 0};
  d.kernel_seconds = 4e-6;
  d.dropout_seconds = 1e-9;
  node.peer_bandwidth = 1e9;
  node.link_latency = 5e-5;
  node.spread_seconds = 1e-4;
  return node;
}

MachineSamples samples_of(const NodeGroup& node) {
  const Cluster cluster{.groups = {node}, .physics = {}};
  const Device& d = node.device;
  MachineSamples samples;
  samples.ranks = node.devices_per_node;
  samples.memory_bytes = 8e9;
  samples.copy_bandwidth = d.memory_bandwidth;
  samples.update_bandwidth = d.memory_bandwidth * d.efficiency.memory * d.efficiency.update;
  Device alone = d;
  alone.kernel_seconds = 0;
  for (const double m : {64.0, 1024.0}) {
    for (const double n : {128.0, 2048.0}) {
      for (const double k : {64.0, 512.0}) {
        const auto seconds = [&](Precision p) { return product_seconds({}, alone, p, 1, m, n, k); };
        samples.products16.push_back({m, n, k, seconds(Precision::kMixed16)});
        samples.products32.push_back({m, n, k, seconds(Precision::kFloat32)});
      }
    }
  }
  for (const int64_t length : {64, 512}) {
    for (const int64_t vocabulary : {1000, 50000}) {
      for (const bool dropout : {false, true}) {
        for (const int64_t rows : {1, 8, -1, -8}) {  // negative: float32
          Job job;
          job.precision = rows < 0 ? Precision::kFloat32 : Precision::kMixed16;
          job.model = model::preset("gpt2-tiny");
          job.model.vocab_size = vocabulary;
          job.sequence = length;
          job.micro_batch = job.global_batch = std::abs(rows);
          job.software.dropout = dropout;
          const Step step = simulate(job, cluster);
          samples.passes.push_back({job, step.step_seconds - step.optimizer - step.rest});
        }
      }
    }
  }
  for (const double length : {32.0, 256.0}) {
    const auto ring = [&](const RingRates& rates) {
      const double seconds = 2 * 8 * length * (length / 2 * rates.score + 64 * rates.number);
      return RingSample{2, 8, length, 64, seconds};
    };
    samples.ring16.push_back(ring(d.ring16));
    samples.ring32.push_back(ring(d.ring32));
  }
  samples.spread = node.spread_seconds;
  for (const double bytes : {1e3, 1e5, 1e7}) {
    samples.reductions.push_back({2, bytes, all_reduce_seconds(cluster, node, {2, 2}, bytes)});
  }
  return samples;
}

TEST(Machine, IsFoundFromWhatItDoes) {
  const NodeGroup node = made_up();
  const NodeGroup found = fit_machine(samples_of(node));
  EXPECT_NEAR(found.device.flops16 / node.device.flops16, 1, 0.01);
  EXPECT_NEAR(found.device.flops32 / node.device.flops32, 1, 0.01);
  EXPECT_NEAR(found.device.short16.inner, 40, 1);
  EXPECT_NEAR(found.peer_bandwidth / 1e9, 1, 0.2);  // the time of trees is not linear
  Job job;
  job.model = model::preset("gpt2-tiny");
  job.sequence = 256;
  job.micro_batch = job.global_batch = 4;
  EXPECT_NEAR(found.device.ring16.number * 1e9, 2, 0.01);
  for (const Precision precision : {Precision::kMixed16, Precision::kFloat32}) {
    job.precision = precision;
    for (const int context : {1, 2}) {
      job.mesh.context = context;
      job.software.ring_in_memory = true;
      const double real = simulate(job, {.groups = {node}, .physics = {}}).step_seconds;
      const double seen = simulate(job, {.groups = {found}, .physics = {}}).step_seconds;
      EXPECT_NEAR(seen / real, 1, 0.03) << context;
    }
  }
}

TEST(Machine, SaysHowFarItsRatesAreOff) {
  MachineSamples samples = samples_of(made_up());
  EXPECT_LT(fit_machine(samples).device.time_error, 0.02);
  for (size_t i = 0; i < samples.passes.size(); i += 2) {
    samples.passes[i].seconds *= 1.5;  // slowed down by other processes
  }
  EXPECT_GT(fit_machine(samples).device.time_error, 0.1);
}

TEST(Machine, ItsFileIsReadAsItWasWritten) {
  NodeGroup node = made_up();
  node.device.time_error = 0.07;
  const Cluster read = parse_cluster(machine_yaml(node, "a comment"), "machine.yaml");
  ASSERT_EQ(read.groups.size(), 1U);
  const NodeGroup& group = read.groups[0];
  EXPECT_TRUE(group.device.measured);
  EXPECT_EQ(group.devices_per_node, 2);
  EXPECT_NEAR(group.device.short32.columns, 5, 1e-6);
  EXPECT_NEAR(group.device.efficiency.activation, 0.2, 1e-6);
  EXPECT_NEAR(group.device.efficiency.softmax, 0.6, 1e-6);
  EXPECT_NEAR(group.device.dropout_seconds * 1e9, 1, 1e-6);
  EXPECT_NEAR(group.link_latency * 1e6, 50, 1e-6);
  EXPECT_NEAR(group.spread_seconds * 1e6, 100, 1e-6);
  EXPECT_NEAR(group.device.efficiency32.memory, 0.3, 1e-6);
  EXPECT_NEAR(group.device.ring32.score * 1e9, 6, 1e-6);
  EXPECT_NEAR(group.device.time_error, 0.07, 1e-6);
}

}  // namespace machine_test
}  // namespace lockstep::plan
