// Devices and links: data sheet values, and fitted efficiencies that convert them to times.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plan {

/// Fractions of the data sheet values that kernels reach. Fitted (see calibration.h) or measured by
/// `lockstep calibrate`; one set per device kind.
struct Efficiency {
  double matrix16 = 0.70;   // of the 16-bit matrix peak, for large aligned products
  double matrix8 = 0.55;    // of the 8-bit matrix peak
  double attention = 0.40;  // fused attention, of the 16-bit peak
  double memory = 0.80;     // of the memory bandwidth, for element-wise kernels
  double activation = 1;    // of `memory`, for the activation function of the MLP
  double softmax = 1;       // of `memory`, for the softmax over the vocabulary
  double update = 1;        // of `memory`, for the optimizer
};

/// Time of a measured device's products: operations over the peak, times 1 + rows / m + columns / n
/// + inner / k.
struct ShortSides {
  double rows = 0, columns = 0, inner = 0;
};

/// Seconds of ring attention, forward and backward, per rank of this machine: per unmasked score,
/// and per element of the keys that pass through the ring, including communication.
struct RingRates {
  double score = 0, number = 0;
};

/// Data sheet of a device. Rates are per second, dense (without sparsity), with 32-bit
/// accumulation.
struct Device {
  std::string name;                  // "h100-80gb"
  std::vector<std::string> aliases;  // other spellings in lower case, without punctuation
  double flops16 = 0;                // bfloat16 or float16 matrix products
  double flops8 = 0;                 // 0: not supported
  double flops32 = 0;                // float32 in the mode that training uses
  double memory_bytes = 0;
  double memory_bandwidth = 0;  // bytes/s
  int processors =
      1;  // streaming multiprocessors (or cores), over which waves of tiles are distributed
  double attention_rate = 1;  // exponential rate relative to the generation
  double watts = 0;
  double chip_watts = 0;  // power of the chip without a limit; 0: the chip is not limited
  double peer_bandwidth =
      0;  // to devices of the node, bytes/s per direction: NVLink, otherwise PCIe
  bool direct_links =
      false;  // links between pairs without a switch: a small group can use fewer links
  double host_bandwidth = 0;    // to host memory, bytes/s per direction
  double host_memory = 0;       // share of the node's memory, bytes; 0: see host_bytes()
  double file_bandwidth = 3e9;  // to files, bytes/s per direction: one NVMe drive per two devices
  double node_network =
      0;  // to other nodes, bytes/s per device and direction: usual network of its servers
  int devices_per_node = 8;  // usual number
  bool is_cpu = false;       // device memory is host memory
  bool measured = false;     // by `lockstep calibrate`: the next fields replace waves of tiles
  ShortSides short16, short32;
  double kernel_seconds = 0;   // minimum time of a kernel
  double dropout_seconds = 0;  // per random number drawn by dropout
  RingRates ring16, ring32;
  double time_error =
      0;  // relative error that nine of ten predicted passes do not exceed; 0: unknown
  const char* source = "";  // source of the values
  Efficiency efficiency;
  Efficiency efficiency32;  // of a measured device in float32; `efficiency` is then that of 16 bits

  /// Returns the memory available for offloading; by default three times the device memory (DGX
  /// servers have three to four times).
  double host_bytes() const { return host_memory > 0 ? host_memory : 3 * memory_bytes; }
};

/// Returns every known device, in the order of the table.
const std::vector<Device>& device_library();
std::vector<std::string> device_names();
/// Returns the device with a name or alias, ignoring case and punctuation ("H100-80GB-SXM" is
/// h100-80gb). Throws Error (config) with the nearest name.
const Device& find_device(std::string_view name);
/// Returns the name in lower case, with only letters and digits.
std::string plain_name(std::string_view name);

}  // namespace lockstep::plan
