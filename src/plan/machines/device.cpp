// Table of known devices.
#include "plan/machines/device.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "plan/machines/calibration.h"

namespace lockstep::plan {

namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;
constexpr double kMebi = 1024.0 * 1024.0;

// Columns: name, aliases, 16-bit, 8-bit and 32-bit rates (TFLOP/s), memory (MiB), bandwidth (GB/s),
// processors, power (W), peer, host and network bandwidth (GB/s), devices per node, source.
struct Sheet {
  const char* name;
  std::vector<std::string> aliases;
  double flops16, flops8, flops32, mebibytes, bandwidth;
  int processors;
  double watts, peers, host, network;
  int devices_per_node;
  const char* source;
};

std::vector<Sheet> sheets() {
  return {
      {"a100-80gb",
       {"a10080gbsxm", "a100", "a100sxm", "a100sxm80gb", "a100sxm480gb"},
       312,
       0,
       19.5,
       81920,
       2039,
       108,
       400,
       300,
       25,
       25,
       8,
       "NVIDIA A100 data sheet (SXM4 80 GB); DGX A100: eight 200 Gb/s ports a node"},
      {"a100-40gb",
       {"a100dgxa100", "a100sxm40gb", "a100sxm440gb"},
       312,
       0,
       19.5,
       40960,
       1555,
       108,
       400,
       300,
       25,
       25,
       8,
       "NVIDIA A100 data sheet (SXM4 40 GB)"},
      {"h100-80gb",
       {"h100", "h10080gbsxm", "dgxh100", "h100sxm"},
       989.4,
       1978.9,
       67,
       81559,
       3350,
       132,
       700,
       450,
       50,
       50,
       8,
       "NVIDIA H100 data sheet (SXM5); DGX H100: eight 400 Gb/s ports a node"},
      {"h100-96gb-500w",
       {"h10096gbhbm2e500w", "h10096gb"},
       989.4,
       1978.9,
       67,
       97871,
       2400,
       132,
       500,
       450,
       50,
       50,
       8,
       "H100 with 96 GB of HBM2e, limited to 500 W (torchtitan's benchmark notes)"},
      {"h200",
       {"h200141gb", "h200sxm"},
       989.4,
       1978.9,
       67,
       143771,
       4800,
       132,
       700,
       450,
       50,
       50,
       8,
       "NVIDIA H200 data sheet (SXM)"},
      {"b200",
       {"dgxb200"},
       2250,
       4500,
       75,
       183359,
       7700,
       148,
       1000,
       900,
       50,
       50,
       8,
       "NVIDIA DGX B200 data sheet, node values divided by 8"},
      {"gb200",
       {"dgxgb200"},
       2500,
       5000,
       80,
       189471,
       8000,
       152,
       1200,
       900,
       225,
       50,
       64,
       "NVIDIA GB200 NVL72 data sheet, a 72nd of the rack; 64 devices in one NVLink domain"},
      {"gb300",
       {"dgxgb300"},
       2500,
       5000,
       80,
       284208,
       8000,
       152,
       1400,
       900,
       225,
       100,
       64,
       "NVIDIA GB300 NVL72 data sheet, a 72nd of the rack"},
      {"v100-16gb",
       {"v100sxm216gb", "v100"},
       125,
       0,
       15.7,
       16160,
       900,
       80,
       300,
       150,
       12.5,
       1.5625,
       8,
       "NVIDIA V100 data sheet (SXM2); a hybrid cube mesh of six links a device, one or two of "
       "them between a pair; one 100 Gb/s port a node"},
      {"v100-32gb",
       {"v10032gbdgx2", "v100sxm332gb"},
       125,
       0,
       15.7,
       32480,
       981,
       80,
       350,
       150,
       12.5,
       6.25,
       16,
       "NVIDIA V100 data sheet (SXM3); DGX-2: sixteen on NVSwitch, eight 100 Gb/s ports"},
      {"rtx-4090",
       {"4090", "geforcertx4090"},
       165.2,
       330.3,
       82.6,
       24564,
       1008,
       128,
       450,
       20,
       25,
       12.5,
       8,
       "NVIDIA Ada GPU architecture white paper, table 2 (32-bit accumulation); PCIe 4.0 x16"},
      {"rtx-5090",
       {"5090", "geforcertx5090"},
       209.5,
       419,
       104.8,
       32607,
       1792,
       170,
       575,
       40,
       50,
       12.5,
       8,
       "NVIDIA RTX Blackwell white paper, table 3 (32-bit accumulation); PCIe 5.0 x16"},
      {"rtx-pro-6000",
       {"rtxpro6000blackwell"},
       503.8,
       1007.6,
       126,
       97887,
       1792,
       188,
       600,
       40,
       50,
       50,
       8,
       "NVIDIA RTX PRO 6000 Blackwell data sheet; PCIe 5.0 x16"},
      {"l40s",
       {"l40"},
       362,
       733,
       91.6,
       46068,
       864,
       142,
       350,
       20,
       25,
       25,
       8,
       "NVIDIA L40S data sheet; PCIe 4.0 x16"},
      {"titan-rtx",
       {},
       130.5,
       0,
       16.3,
       24576,
       672,
       72,
       280,
       50,
       12.5,
       1.25,
       4,
       "NVIDIA Turing white paper (16-bit accumulation); NVLink bridge of a pair"},
      {"tpu-v3-core",
       {"tpuv3core16gb"},
       61.5,
       0,
       4,
       16384,
       450,
       1,
       100,
       70,
       16,
       70,
       8,
       "Google Cloud TPU v3 documentation, half a chip"},
      {"cpu",
       {"cpucore"},
       0.215,
       0,
       0.09,
       8192,
       12,
       1,
       15,
       1.0,
       10,
       0.125,
       64,
       "one core with AVX-512 and bfloat16, measured: 215 and 90 GFLOP/s, Gloo over loopback 1 "
       "GB/s"},
  };
}

std::vector<Device> make_library() {
  std::vector<Device> library;
  for (const Sheet& sheet : sheets()) {
    Device device;
    device.name = sheet.name;
    device.aliases = sheet.aliases;
    device.flops16 = sheet.flops16 * kTera;
    device.flops8 = sheet.flops8 * kTera;
    device.flops32 = sheet.flops32 * kTera;
    device.memory_bytes = sheet.mebibytes * kMebi;
    device.memory_bandwidth = sheet.bandwidth * kGiga;
    device.processors = sheet.processors;
    device.watts = sheet.watts;
    device.peer_bandwidth = sheet.peers * kGiga;
    device.host_bandwidth = sheet.host * kGiga;
    device.node_network = sheet.network * kGiga;
    device.devices_per_node = sheet.devices_per_node;
    device.source = sheet.source;
    device.is_cpu = device.name == "cpu";
    device.direct_links = device.name == "v100-16gb";
    device.attention_rate = device.name == "gb300" ? 1.5 : 1;  // exponentials twice as fast
    device.chip_watts = device.name == "h100-96gb-500w" ? 700 : 0;
    device.efficiency = fitted_efficiency(device);
    library.push_back(std::move(device));
  }
  return library;
}

}  // namespace

std::string plain_name(std::string_view name) {
  std::string result;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return result;
}

const std::vector<Device>& device_library() {
  static const std::vector<Device> library = make_library();
  return library;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Device& device : device_library()) {
    names.push_back(device.name);
  }
  return names;
}

const Device& find_device(std::string_view name) {
  const std::string plain = plain_name(name);
  for (const Device& device : device_library()) {
    const auto& aliases = device.aliases;
    if (plain_name(device.name) == plain ||
        std::find(aliases.begin(), aliases.end(), plain) != aliases.end()) {
      return device;
    }
  }
  const std::vector<std::string> names = device_names();
  throw Error(
      ErrorKind::kConfig,
      fmt::format("unknown device '{}'.{}", name, did_you_mean(name, names)),
      fmt::format("use one of {}, or describe it in a cluster file", fmt::join(names, ", ")));
}

}  // namespace lockstep::plan
