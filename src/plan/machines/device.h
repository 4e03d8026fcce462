// Devices and links: data sheet values, and fitted efficiencies that convert them to times.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plan {

/// Fractions of the data sheet values that kernels reach. Fitted (see calibration.h) or measured by
/// `lockstep calibrate`. There is one set per device kind.
struct Efficiency {
  double matrix16 = 0.70;   // fraction of the 16-bit matrix peak for large aligned products
  double matrix8 = 0.55;    // fraction of the 8-bit matrix peak
  double attention = 0.40;  // fused attention: fraction of the 16-bit peak
  double memory = 0.80;     // element-wise kernels: fraction of the memory bandwidth
  double activation = 1;    // MLP activation function: fraction of `memory`
  double softmax = 1;       // softmax over the vocabulary: fraction of `memory`
  double update = 1;        // optimizer: fraction of `memory`
};

/// Terms of a measured device's product time: operations / peak times (1 + rows / m + columns / n +
/// inner / k).
struct ShortSides {
  double rows = 0, columns = 0, inner = 0;
};

/// Forward and backward seconds of ring attention per rank of this machine: per unmasked score, and
/// per element of the keys that pass through the ring. Includes communication.
struct RingRates {
  double score = 0, number = 0;
};

/// Data sheet of a device. Rates are per second, without sparsity, with 32-bit accumulation.
struct Device {
  std::string name;                  // "h100-80gb"
  std::vector<std::string> aliases;  // alternative names in lower case without punctuation
  double flops16 = 0;                // bfloat16 or float16 matrix products
  double flops8 = 0;                 // 0: not supported
  double flops32 = 0;                // float32 matrix products in the mode used for training
  double memory_bytes = 0;
  double memory_bandwidth = 0;  // bytes/s
  int processors = 1;           // streaming multiprocessors or cores that execute waves of tiles
  double attention_rate = 1;    // attention rate relative to the device generation
  double watts = 0;
  double chip_watts = 0;  // chip power without a limit; 0: not power-limited
  double peer_bandwidth =
      0;  // bytes/s per direction to devices in the node: NVLink, otherwise PCIe
  bool direct_links = false;    // direct links without a switch: small groups can use fewer links
  double host_bandwidth = 0;    // bytes/s per direction to host memory
  double host_memory = 0;       // bytes of host memory per device; 0: see host_bytes()
  double file_bandwidth = 3e9;  // bytes/s per direction to files: one NVMe drive per two devices
  double node_network = 0;   // bytes/s per device and direction to other nodes: the usual network
  int devices_per_node = 8;  // usual number
  bool is_cpu = false;       // device memory is host memory
  bool measured = false;     // by `lockstep calibrate`: the next fields replace waves of tiles
  ShortSides short16, short32;
  double kernel_seconds = 0;   // minimum time of a kernel
  double dropout_seconds = 0;  // seconds per random number for dropout
  RingRates ring16, ring32;
  double time_error = 0;    // 90th percentile of the relative error of predicted passes; 0: unknown
  const char* source = "";  // source of the values
  Efficiency efficiency;
  Efficiency efficiency32;  // float32 efficiency of a measured device; `efficiency` then applies to
                            // 16 bits

  /// Returns the host memory available for offloading. The default is three times the device
  /// memory; DGX servers have three to four times.
  double host_bytes() const { return host_memory > 0 ? host_memory : 3 * memory_bytes; }
};

/// Returns all known devices in table order.
const std::vector<Device>& device_library();
std::vector<std::string> device_names();
/// Returns the device with this name or alias. Ignores case and punctuation ("H100-80GB-SXM" is
/// h100-80gb). Throws Error (config) with the nearest name.
const Device& find_device(std::string_view name);
/// Returns the letters and digits of a name in lower case.
std::string plain_name(std::string_view name);

}  // namespace lockstep::plan
