// Tests devices, kernels, links, and the planner's model of a configuration.
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/cost/kernels.h"
#include "plan/from_config/planned_model.h"
#include "plan/from_config/quantization.h"
#include "plan/machines/cluster.h"
#include "plan/machines/device.h"
#include "plan/memory/memory_table.h"

namespace lockstep::plan {
namespace devices_test {

TEST(DeviceLibrary, EveryFigureIsOne) {
  std::set<std::string> words;
  for (const Device& device : device_library()) {
    EXPECT_TRUE(words.insert(plain_name(device.name)).second) << device.name;
    for (const std::string& alias : device.aliases) {
      EXPECT_EQ(alias, plain_name(alias)) << "it is never found otherwise";
      EXPECT_TRUE(words.insert(alias).second) << alias << " is two devices'";
      EXPECT_EQ(find_device(alias).name, device.name);
    }
    EXPECT_GT(device.flops16, 0) << device.name;
    EXPECT_GT(device.flops32, 0) << device.name;
    EXPECT_LE(device.flops32, device.flops16) << device.name;
    EXPECT_TRUE(device.flops8 == 0 || device.flops8 >= device.flops16) << device.name;
    EXPECT_GT(device.memory_bytes, 1e9) << device.name;
    EXPECT_GT(device.memory_bandwidth, 1e9) << device.name;
    EXPECT_GT(device.host_bytes(), device.memory_bytes) << device.name;
    EXPECT_GE(device.devices_per_node, 1) << device.name;
    EXPECT_FALSE(std::string(device.source).empty()) << device.name;
    for (const double share :
         {device.efficiency.matrix16, device.efficiency.attention, device.efficiency.memory}) {
      EXPECT_GT(share, 0) << device.name;
      EXPECT_LE(share, 1) << device.name;
    }
  }
  EXPECT_EQ(device_names().size(), device_library().size());
}

/// The calibration substitute of a device is in the library and is its own substitute.
TEST(DeviceLibrary, WhatADeviceIsCalibratedAsIsThere) {
  for (const std::string& name : device_names()) {
    const std::string other = calibrated_as(name);
    EXPECT_EQ(calibrated_as(other), other) << name;
    EXPECT_NO_THROW((void)find_device(other)) << name;
    if (other != name) {
      EXPECT_TRUE(calibration().devices.contains(other)) << name << " lends figures of " << other;
    }
    EXPECT_EQ(
        fitted_efficiency(find_device(name)).matrix16,
        fitted_efficiency(find_device(other)).matrix16);
  }
  // A device without runs uses the efficiency of its kind.
  Device unknown;
  unknown.name = "no such device";
  EXPECT_EQ(fitted_efficiency(unknown).matrix16, Efficiency{}.matrix16);
  unknown.name = "rtx-3090";
  EXPECT_GT(fitted_efficiency(unknown).matrix16, Efficiency{}.matrix16);
  unknown.name = "another of Blackwell's";
  unknown.flops8 = 4.5e15;
  EXPECT_LT(fitted_efficiency(unknown).attention, Efficiency{}.attention);
  for (const auto& [name, efficiency] : calibration().devices) {
    EXPECT_NO_THROW((void)find_device(name)) << "fitted, and nobody has it: " << name;
  }
}

double seconds_of(const Device& device, Precision precision, double m, double n, double k) {
  return product_seconds(calibration().physics, device, precision, 1, m, n, k);
}

TEST(Kernels, SizesThatMatrixUnitsDoNotTakeCost) {
  const Device& device = find_device("a100-80gb");
  const double best = seconds_of(device, Precision::kMixed16, 4096, 4096, 4096);
  double before = best;
  for (const double width : {4096.0 - 32, 4096.0 - 16, 4096.0 - 8}) {
    const double seconds = seconds_of(device, Precision::kMixed16, 4096, width, width);
    EXPECT_GT(seconds, before) << width;
    before = seconds;
  }
  // Sizes that are not multiples of 8 use the 32-bit rate, however close they are.
  EXPECT_GT(seconds_of(device, Precision::kMixed16, 4096, 4095, 4096), 2 * best);
  EXPECT_GT(seconds_of(device, Precision::kMixed16, 4096, 4096, 4092), 2 * best);
  EXPECT_NEAR(seconds_of(device, Precision::kMixed16, 4095, 4096, 4096), best, 0.05 * best)
      << "rows of the left side may be as many as they like";
}

TEST(Kernels, EightBitsAreSixteenWhereADeviceHasNone) {
  const Device& old = find_device("a100-80gb");
  ASSERT_EQ(old.flops8, 0);
  EXPECT_EQ(
      seconds_of(old, Precision::kFloat8, 4096, 4096, 4096),
      seconds_of(old, Precision::kMixed16, 4096, 4096, 4096));
  const Device& recent = find_device("h100-80gb");
  EXPECT_LT(
      seconds_of(recent, Precision::kFloat8, 8192, 8192, 8192),
      seconds_of(recent, Precision::kMixed16, 8192, 8192, 8192));
}

TEST(Kernels, OneRowIsBoundByMemory) {
  const Device& device = find_device("h100-80gb");
  const double bytes = kHalf * (8192.0 + 8192.0 * 8192 + 8192);
  EXPECT_NEAR(
      seconds_of(device, Precision::kMixed16, 1, 8192, 8192),
      memory_seconds(device, bytes) + calibration().physics.kernel_seconds,
      1e-12);
}

/// The rates of a measured device are used without tiles and waves, only with the short-side terms.
TEST(Kernels, AMeasuredDeviceHasItsOwnFormula) {
  Device device = find_device("cpu");
  device.measured = true;
  device.flops16 = 2e9;
  device.flops32 = 1e9;
  device.memory_bandwidth = 1e9;
  device.short16 = {.rows = 10, .columns = 20, .inner = 40};
  device.kernel_seconds = 0.5;
  device.efficiency.memory = 0.5;
  device.efficiency.activation = 0.25;
  device.efficiency32.memory = 2;
  EXPECT_NEAR(
      seconds_of(device, Precision::kMixed16, 10, 20, 40), 2.0 * 8000 / 2e9 * 4 + 0.5, 1e-12);
  EXPECT_NEAR(seconds_of(device, Precision::kFloat32, 10, 20, 40), 2.0 * 8000 / 1e9 + 0.5, 1e-12);
  EXPECT_NEAR(memory_seconds(device, 1e9), 2, 1e-12);
  EXPECT_NEAR(memory_seconds(device, 1e9, Precision::kFloat32), 0.5, 1e-12);
  EXPECT_NEAR(copy_seconds(device, 1e9), 1, 1e-12);
  EXPECT_NEAR(
      elementwise_seconds(
          device, {.activation = 1e9, .scores = 1e9, .others = 1e9}, Precision::kMixed16),
      8 + 1 + 2,
      1e-12);
  device.measured = false;
  EXPECT_NEAR(copy_seconds(device, 1e9), 2, 1e-12);
}

TEST(Kernels, AChipOfLessPowerIsSlower) {
  const Physics& physics = calibration().physics;
  EXPECT_EQ(power_share(physics, find_device("h100-80gb")), 1);
  const Device& limited = find_device("h100-96gb-500w");
  EXPECT_NEAR(power_share(physics, limited), std::pow(500.0 / 700, physics.power_exponent), 1e-12);
}

Cluster two_nodes() {
  return uniform_cluster(find_device("h100-80gb"), 16);
}

TEST(Links, OneMessageIsBytesOverTheLinkAndItsLatency) {
  const Cluster cluster = two_nodes();
  const NodeGroup& node = cluster.groups[0];
  const Physics& physics = cluster.physics;
  EXPECT_NEAR(
      message_seconds(cluster, node, true, 1e9),
      1e9 / (node.peer_bandwidth * physics.link_efficiency) + physics.link_latency,
      1e-12);
  EXPECT_NEAR(
      message_seconds(cluster, node, false, 1e9),
      1e9 / (node.network_bandwidth * physics.network_efficiency) + physics.network_latency,
      1e-12);
  EXPECT_GT(message_seconds(cluster, node, false, 0), 0);
  NodeGroup measured = node;
  measured.link_latency = 1e-3;
  EXPECT_NEAR(
      message_seconds(cluster, measured, true, 1e9), 1e9 / node.peer_bandwidth + 1e-3, 1e-12);
}

/// Without a switch a pair has only the links between the two devices.
TEST(Links, ASmallGroupOfDirectLinksHasFewerOfThem) {
  const Cluster cube = uniform_cluster(find_device("v100-16gb"), 8);
  const NodeGroup& node = cube.groups[0];
  ASSERT_TRUE(node.device.direct_links);
  const double bytes = 1e10;
  const auto rate = [&](double members) {
    return bytes * (members - 1) / members /
           all_gather_seconds(cube, node, {members, members}, bytes);
  };
  EXPECT_NEAR(rate(8) / rate(4), 6.0 / 4, 0.01);
  EXPECT_NEAR(rate(8) / rate(2), 6, 0.05);
}

TEST(Links, AtTheRooflineNothingIsLost) {
  const Cluster cluster = at_roofline(two_nodes());
  const NodeGroup& node = cluster.groups[0];
  EXPECT_NEAR(all_gather_seconds(cluster, node, {8, 8}, 8e9), 7e9 / node.peer_bandwidth, 1e-12);
  EXPECT_NEAR(all_reduce_seconds(cluster, node, {8, 8}, 8e9), 14e9 / node.peer_bandwidth, 1e-12);
  EXPECT_EQ(node.wait_seconds(100), 0);
  EXPECT_NEAR(
      product_seconds(cluster.physics, node.device, Precision::kMixed16, 3, 10, 20, 40),
      3 * 2 * 8000 / node.device.flops16,
      1e-18);
}

TEST(Cluster, RanksAreNumberedThroughTheGroups) {
  Cluster cluster = uniform_cluster(find_device("h100-80gb"), 20);
  ASSERT_EQ(cluster.groups.size(), 2U) << "two nodes of 8, and one of 4";
  cluster.groups[1].device = find_device("a100-80gb");
  EXPECT_EQ(cluster.devices(), 20);
  EXPECT_EQ(cluster.node_of(0), 0);
  EXPECT_EQ(cluster.node_of(8), 1);
  EXPECT_EQ(cluster.node_of(15), 1);
  EXPECT_EQ(cluster.node_of(16), 2);
  EXPECT_EQ(cluster.node_of(19), 2);
  EXPECT_EQ(cluster.group_of(15).device.name, "h100-80gb");
  EXPECT_EQ(cluster.group_of(16).device.name, "a100-80gb");
  EXPECT_EQ(cluster.common_node_size(), 4);
  EXPECT_TRUE(cluster.unequal());
  EXPECT_EQ(cluster.slowest().device.name, "a100-80gb");
  EXPECT_EQ(cluster.slowest_of(0, 16).device.name, "h100-80gb");
  EXPECT_EQ(cluster.slowest_of(15, 2).device.name, "a100-80gb");
  EXPECT_EQ(cluster.slowest_of(16, 1).device.name, "a100-80gb");
  EXPECT_FALSE(uniform_cluster(find_device("h100-80gb"), 20).unequal());
  EXPECT_EQ(uniform_cluster(find_device("h100-80gb"), 3).common_node_size(), 3);
}

TEST(BytesText, RoundsForPeople) {
  const std::vector<std::pair<double, const char*>> texts{
      {0, "-"},
      {4e4, "0.0 MB"},
      {6e4, "0.1 MB"},
      {9.99e7, "99.9 MB"},
      {1e8, "0.1 GB"},
      {8.05e10, "80.5 GB"},
      {9.8e13, "98000.0 GB"},
      {1.234e14, "123 TB"}};
  for (const auto& [bytes, text] : texts) {
    EXPECT_EQ(bytes_text(bytes), text);
  }
}

config::Config with_preset(const char* name) {
  config::Config config;
  config.model.preset = name;
  return config;
}

TEST(PlannedModel, AClassifiersHeadIsWhatIsKnownOfIt) {
  config::Config config = with_preset("gpt2");
  EXPECT_FALSE(planned_model(config).head.classifies());
  config.task.type = "sequence_classification";
  using Labels = std::vector<std::string>;
  using model::ProblemType;
  const auto head = [&] { return planned_model(config).head; };
  EXPECT_EQ(head().labels, (Labels{"LABEL_0", "LABEL_1"}));
  EXPECT_EQ(head().problem, ProblemType::kSingleLabel);
  config.data.label_delimiter = ";";
  EXPECT_EQ(head().problem, ProblemType::kMultiLabel);
  config.data.label_delimiter.clear();
  config.data.label_field = {"x", "y", "z"};
  EXPECT_EQ(head().problem, ProblemType::kMultiLabel);
  EXPECT_EQ(head().labels, (Labels{"x", "y", "z"}));
  config.task.problem_type = "regression";
  EXPECT_EQ(head().problem, ProblemType::kRegression);
  EXPECT_EQ(head().labels.size(), 3U);
  config.data.label_field = {"x"};
  EXPECT_EQ(head().labels, (Labels{"LABEL_0"}));
  config.task.problem_type = "single_label_classification";
  config.task.labels = {"a", "b", "c"};
  EXPECT_EQ(head().labels, (Labels{"a", "b", "c"}));
}

TEST(PlannedModel, TheModelsOwnLabelsStayUnlessOthersAreAskedFor) {
  model::ModelConfig model = model::preset("gpt2");
  model.head = {
      model::HeadSpec::Kind::kClassifier, {"p", "q", "r"}, model::ProblemType::kMultiLabel};
  config::Config config;
  EXPECT_EQ(planned_head(config, model), model.head);
  config.task.labels = {"a", "b"};
  EXPECT_EQ(planned_head(config, model).labels, config.task.labels);
  EXPECT_EQ(planned_head(config, model).problem, model::ProblemType::kSingleLabel);
}

TEST(PlannedModel, WhatIsNoModelIsToldWithTheNearestPreset) {
  const auto problem = [](const config::Config& config, ErrorKind kind = ErrorKind::kConfig) {
    try {
      (void)planned_model(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(problem(config::Config{}).find("a model is required"), std::string::npos);
  config::Config config;
  config.model.path = "gpt2-xxl";
  EXPECT_NE(problem(config, ErrorKind::kData).find("Did you mean 'gpt2-xl'?"), std::string::npos);
  config.model.path = "gpt2-xl";  // a preset instead of a path
  EXPECT_EQ(problem(config), "");
  config.data.sequence_length = 1025;
  EXPECT_NE(problem(config).find("1024"), std::string::npos);
}

TEST(PlannedQuantization, AFoldersOwnPackingStays) {
  config::QuantizationSection section;
  EXPECT_FALSE(quantization_of(section));
  section.bits = 4;
  ASSERT_TRUE(quantization_of(section));
  EXPECT_EQ(quantization_of(section)->bits, 4);
  EXPECT_FALSE(quantization_of(section)->double_quant);
  section.double_quant = true;
  section.block_size = 128;
  section.skip_modules = {"lm_head"};
  EXPECT_TRUE(quantization_of(section)->double_quant);
  EXPECT_EQ(quantization_of(section)->block_size, 128);
  EXPECT_EQ(quantization_of(section)->skip_modules, section.skip_modules);
  model::ModelConfig folder = model::preset("gpt2");
  EXPECT_EQ(packed_as(folder, section)->bits, 4);
  folder.quantization = model::Quantization{};
  folder.quantization->bits = 8;
  EXPECT_EQ(packed_as(folder, section)->bits, 8);
  EXPECT_EQ(packed_as(folder, {})->bits, 8);
}

}  // namespace devices_test
}  // namespace lockstep::plan
