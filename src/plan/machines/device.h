// Devices and links: figures of public data sheets, and the few fitted efficiencies that turn them
// into times.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plan {

/// What share of a data sheet's figures real kernels reach. Fitted (see calibration.h) or measured
/// by `lockstep calibrate`; one set a device kind.
struct Efficiency {
  double matrix16 = 0.70;   // of the 16-bit matrix peak, for a large aligned product
  double matrix8 = 0.55;    // of the 8-bit matrix peak
  double attention = 0.40;  // fused attention, of the 16-bit peak
  double memory = 0.80;     // of the memory bandwidth, for element-wise kernels
  double activation = 1;    // of that, for the activation inside the MLP
  double softmax = 1;       // of that, for the softmax over the vocabulary
  double update = 1;        // of that, for the optimizer
};

/// A measured device's products: their operations over the peak, times 1 + rows / m + columns / n +
/// inner / k.
struct ShortSides {
  double rows = 0, columns = 0, inner = 0;
};

/// Seconds of ring attention, forward and backward, on each rank of this machine: for each score
/// that is seen, and for each number of keys that passes by, on its way too.
struct RingRates {
  double score = 0, number = 0;
};

/// A device's data sheet. Rates are per second: dense (no sparsity), 32-bit accumulation.
struct Device {
  std::string name;                  // "h100-80gb"
  std::vector<std::string> aliases;  // how others write it, lower case, without punctuation
  double flops16 = 0;                // bfloat16 or float16 matrix products
  double flops8 = 0;                 // 0: none
  double flops32 = 0;                // float32 as training uses it
  double memory_bytes = 0;
  double memory_bandwidth = 0;  // bytes/s
  int processors = 1;  // streaming multiprocessors (or cores): waves of tiles are counted with it
  double attention_rate = 1;  // of its exponentials, over its generation's
  double watts = 0;
  double chip_watts = 0;      // of the same chip where its power is not limited; 0: it is not here
  double peer_bandwidth = 0;  // to devices of the node, bytes/s one way: NVLink, else PCIe
  bool direct_links = false;  // links between pairs, no switch: a small group has fewer of them
  double host_bandwidth = 0;  // to host memory, bytes/s one way
  double host_memory = 0;     // its share of its node's memory, bytes; 0: see host_bytes
  double file_bandwidth = 3e9;  // to files, bytes/s one way: an NVMe drive for two devices
  double node_network =
      0;  // to other nodes, bytes/s one way for each device: the usual network of its servers
  int devices_per_node = 8;  // usual
  bool is_cpu = false;       // host memory is its own
  bool measured = false;     // by `lockstep calibrate`: what follows holds, not waves of tiles
  ShortSides short16, short32;
  double kernel_seconds = 0;   // of a kernel, however small
  double dropout_seconds = 0;  // of a random number that dropout draws
  RingRates ring16, ring32;
  double time_error = 0;    // of nine of ten of its passes, by these rates, at most; 0: not known
  const char* source = "";  // of the figures
  Efficiency efficiency;
  Efficiency efficiency32;  // of a measured device in float32; `efficiency` is of 16 bits then

  /// What it can offload to: where nobody says, three times its own memory (DGX servers have three
  /// to four times).
  double host_bytes() const { return host_memory > 0 ? host_memory : 3 * memory_bytes; }
};

/// Every device that is known, in the order of the table.
const std::vector<Device>& device_library();
std::vector<std::string> device_names();
/// By name or alias, whatever the case and punctuation ("H100-80GB-SXM" is h100-80gb). Throws
/// (config) with the nearest name.
const Device& find_device(std::string_view name);
/// Lower case letters and digits alone.
std::string plain_name(std::string_view name);

}  // namespace lockstep::plan
