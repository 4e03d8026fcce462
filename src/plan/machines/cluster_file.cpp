// Reads cluster files.
#include <algorithm>
#include <cmath>
#include <set>

#include <yaml-cpp/yaml.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/nearest.h"
#include "plan/machines/cluster.h"

namespace lockstep::plan {

namespace {

class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {}

  Cluster read(std::string_view text) {
    YAML::Node root;
    try {
      root = YAML::Load(std::string(text));
    } catch (const YAML::Exception& error) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "{} is invalid YAML at line {}: {}", source_, error.mark.line + 1, error.msg));
    }
    Cluster cluster;
    cluster.physics = calibration().physics;
    if (!root.IsMap() || !root["nodes"] || !root["nodes"].IsSequence() ||
        root["nodes"].size() == 0) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{} requires a list of nodes", source_),
          "nodes: [{count: 2, devices: 8, device: h100-80gb}]");
    }
    check_keys(root, {"nodes"}, "");
    if (root["nodes"].size() > 4096) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("{} has more than 4096 entries of nodes: use count", source_));
    }
    for (size_t i = 0; i < root["nodes"].size(); ++i) {
      cluster.groups.push_back(read_group(root["nodes"][i], fmt::format("nodes[{}]", i)));
    }
    if (problems_.empty() && devices(cluster) > 1e6) {
      problems_.push_back(
          fmt::format("{:.0f} devices are more than the maximum of a million", devices(cluster)));
    }
    if (!problems_.empty()) {
      throw Error(
          ErrorKind::kConfig, fmt::format("{}:\n  {}", source_, fmt::join(problems_, "\n  ")));
    }
    return cluster;
  }

 private:
  static double devices(const Cluster& cluster) {
    double sum = 0;
    for (const NodeGroup& group : cluster.groups) {
      sum += static_cast<double>(group.nodes) * group.devices_per_node;
    }
    return sum;
  }

  void check_keys(
      const YAML::Node& node, const std::vector<std::string>& known, const std::string& where) {
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const auto key = entry.first.as<std::string>("?");
      if (!seen.insert(key).second) {
        problems_.push_back(
            fmt::format("{}{} is given twice", where.empty() ? "" : where + ".", key));
      }
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        problems_.push_back(fmt::format(
            "{}{} is not a key of a cluster file.{} Known: {}",
            where.empty() ? "" : where + ".",
            key,
            did_you_mean(key, known),
            fmt::join(known, ", ")));
      }
    }
  }

  double number(
      const YAML::Node& node,
      const char* key,
      double fallback,
      double least,
      double most,
      const std::string& where) {
    if (!node[key]) {
      return fallback;
    }
    double value = 0;
    try {
      value = node[key].as<double>();
    } catch (const YAML::Exception&) {
      value = std::nan("");
    }
    if (!(value >= least && value <= most)) {
      problems_.push_back(fmt::format(
          "{}.{} is {}, but must be a number from {} to {}",
          where,
          key,
          node[key].IsScalar() ? node[key].Scalar() : "no number",
          least,
          most));
      return fallback;
    }
    return value;
  }

  int whole_number(
      const YAML::Node& node,
      const char* key,
      int fallback,
      double least,
      double most,
      const std::string& where) {
    const double value = number(node, key, fallback, least, most, where);
    if (value != std::floor(value)) {
      problems_.push_back(
          fmt::format("{}.{} is {}, but must be an integer", where, key, node[key].Scalar()));
    }
    return static_cast<int>(value);
  }

  // Reads a device by name from the device library. `where` is the location of the key.
  Device read_library_device(const YAML::Node& node, const std::string& where) {
    const auto problem = [&](const std::string& text) {
      problems_.push_back(
          fmt::format("{}{} Known: {}", where, text, fmt::join(device_names(), ", ")));
      return device_library().front();
    };
    if (!node || !node.IsScalar()) {
      return problem(
          " must be a known device, or the most similar one with changed values: {like: a100-80gb, "
          "tflops16: 280}.");
    }
    try {
      return find_device(node.Scalar());
    } catch (const Error& error) {
      return problem(
          ": " + error.message() + " Or set its values: {like: a100-80gb, tflops16: 280}.");
    }
  }

  Device read_device(const YAML::Node& node, const std::string& at) {
    if (!node || !node.IsMap()) {
      return read_library_device(node, at);
    }
    check_keys(
        node,
        {"like",
         "name",
         "tflops16",
         "tflops8",
         "tflops32",
         "memory_gb",
         "bandwidth_gb_s",
         "processors",
         "watts",
         "host_gb_s",
         "host_memory_gb",
         "matrix_efficiency",
         "attention_efficiency",
         "memory_efficiency",
         "activation_efficiency",
         "softmax_efficiency",
         "update_efficiency",
         "short_sides16",
         "short_sides32",
         "attention_efficiency32",
         "memory_efficiency32",
         "activation_efficiency32",
         "softmax_efficiency32",
         "kernel_us",
         "time_error",
         "dropout_ns",
         "ring16_ns",
         "ring32_ns"},
        at);
    Device device = read_library_device(node["like"], at + ".like");
    device.name = node["name"] ? node["name"].as<std::string>("device") : "like " + device.name;
    device.flops16 = number(node, "tflops16", device.flops16 / 1e12, 1e-4, 1e6, at) * 1e12;
    device.flops8 = number(node, "tflops8", device.flops8 / 1e12, 0, 1e6, at) * 1e12;
    device.flops32 = number(node, "tflops32", device.flops32 / 1e12, 1e-4, 1e6, at) * 1e12;
    device.memory_bytes = number(node, "memory_gb", device.memory_bytes / 1e9, 0.1, 1e5, at) * 1e9;
    device.memory_bandwidth =
        number(node, "bandwidth_gb_s", device.memory_bandwidth / 1e9, 0.1, 1e6, at) * 1e9;
    device.processors = whole_number(node, "processors", device.processors, 1, 1e5, at);
    device.watts = number(node, "watts", device.watts, 0, 1e5, at);
    device.host_bandwidth =
        number(node, "host_gb_s", device.host_bandwidth / 1e9, 0.01, 1e5, at) * 1e9;
    device.host_memory =
        number(node, "host_memory_gb", device.host_memory / 1e9, 0.1, 1e6, at) * 1e9;
    device.efficiency.matrix16 =
        number(node, "matrix_efficiency", device.efficiency.matrix16, 0.01, 1, at);
    device.measured = node["short_sides16"] || node["short_sides32"];
    read_efficiency(node, "", device.measured, at, device.efficiency);
    device.efficiency32 = device.efficiency;
    read_efficiency(node, "32", device.measured, at, device.efficiency32);
    device.efficiency.update =
        number(node, "update_efficiency", device.efficiency.update, 1e-3, 1e3, at);
    device.short16 = short_sides(node, "short_sides16", at);
    device.short32 = short_sides(node, "short_sides32", at);
    device.kernel_seconds = number(node, "kernel_us", 0, 0, 1e5, at) * 1e-6;
    device.time_error = number(node, "time_error", 0, 0, 100, at);
    device.dropout_seconds = number(node, "dropout_ns", 0, 0, 1e5, at) * 1e-9;
    device.ring16 = ring_rates(node, "ring16_ns", at);
    device.ring32 = ring_rates(node, "ring32_ns", at);
    return device;
  }

  // Reads fractions of data sheet values. Measured values are relative to the rate of a large copy
  // and may exceed 1 for cached data.
  void read_efficiency(
      const YAML::Node& node,
      const std::string& type,
      bool measured,
      const std::string& where,
      Efficiency& efficiency) {
    const double most = measured ? 100 : 1;
    const auto read = [&](const std::string& name, double& value, double least, double largest) {
      value = number(node, (name + type).c_str(), value, least, largest, where);
    };
    read("attention_efficiency", efficiency.attention, 0.01, most);
    read("memory_efficiency", efficiency.memory, 0.01, most);
    read("activation_efficiency", efficiency.activation, 1e-3, 1e3);
    read("softmax_efficiency", efficiency.softmax, 1e-3, 1e3);
  }

  // Returns a list of `count` numbers between 0 and 100000; empty if the key is missing.
  std::vector<double> numbers(
      const YAML::Node& node,
      const char* key,
      size_t count,
      const char* names,
      const std::string& where) {
    const YAML::Node& list = node[key];
    if (!list) {
      return {};
    }
    std::vector<double> values;
    bool good = list.IsSequence() && list.size() == count;
    for (size_t i = 0; good && i < count; ++i) {
      values.push_back(list[i].as<double>(-1.0));
      good = values.back() >= 0 && values.back() <= 1e5;
    }
    if (!good) {
      problems_.push_back(
          fmt::format("{}.{} must be {} numbers from 0 to 100000: {}", where, key, count, names));
      return {};
    }
    return values;
  }

  ShortSides short_sides(const YAML::Node& node, const char* key, const std::string& where) {
    const auto values = numbers(node, key, 3, "rows, columns, inner", where);
    return values.empty() ? ShortSides{} : ShortSides{values[0], values[1], values[2]};
  }

  RingRates ring_rates(const YAML::Node& node, const char* key, const std::string& where) {
    const auto values = numbers(node, key, 2, "of a score, of an element of the queries", where);
    return values.empty() ? RingRates{} : RingRates{values[0] * 1e-9, values[1] * 1e-9};
  }

  NodeGroup read_group(const YAML::Node& node, const std::string& where) {
    NodeGroup group;
    if (!node.IsMap()) {
      problems_.push_back(where + " must be a map: {count: 2, devices: 8, device: h100-80gb}");
      return group;
    }
    check_keys(
        node,
        {"name",
         "count",
         "devices",
         "device",
         "peer_gb_s",
         "network_gb_s",
         "latency_us",
         "spread_us"},
        where);
    group.device = read_device(node["device"], where + ".device");
    group.name = node["name"] ? node["name"].as<std::string>("node") : "node";
    group.nodes = whole_number(node, "count", 1, 1, 1e6, where);
    group.devices_per_node =
        whole_number(node, "devices", group.device.devices_per_node, 1, 4096, where);
    group.peer_bandwidth =
        number(node, "peer_gb_s", group.device.peer_bandwidth / 1e9, 1e-3, 1e5, where) * 1e9;
    group.network_bandwidth =
        number(node, "network_gb_s", group.device.node_network / 1e9, 1e-3, 1e5, where) * 1e9;
    group.link_latency = number(node, "latency_us", 0, 0, 1e6, where) * 1e-6;
    group.spread_seconds = number(node, "spread_us", 0, 0, 1e6, where) * 1e-6;
    return group;
  }

  std::string source_;
  std::vector<std::string> problems_;
};

}  // namespace

Cluster parse_cluster(std::string_view yaml, const std::string& source) {
  return Reader(source).read(yaml);
}

Cluster read_cluster(const std::filesystem::path& path) {
  if (std::error_code ignored; !std::filesystem::exists(path, ignored)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("cluster file {} not found", path.string()),
        "`lockstep calibrate` writes the file of this machine; for GPUs of one kind, pass "
        "`lockstep plan` the kind and the number: --gpu h100-80gb --gpus 8");
  }
  return parse_cluster(read_file(path, ErrorKind::kConfig, kLongestJson), path.string());
}

}  // namespace lockstep::plan
