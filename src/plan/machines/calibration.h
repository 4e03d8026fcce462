// The fitted parameters of the cost model: few, physical, one set for all systems and one a device
// kind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/machines/device.h"

namespace lockstep::plan {

/// Parameters that hold for every device.
struct Physics {
  double tile_seconds =
      1.2e-6;                // of a wave of tiles, besides its products: first loads, last stores
  double wave_waste = 0.7;   // of the processors that the last wave of tiles leaves idle
  double misaligned = 0.72;  // of a product whose sizes are multiples of 8 but not of 64
  double unaligned = 0.5;    // of the 32-bit rate: products whose rows are no multiple of 16 bytes,
                             // which matrix units do not take
  double kernel_seconds = 4e-6;   // of a kernel, however small
  double host_seconds = 1e-2;     // of a block and micro-batch that waits for the host
  double message_seconds = 2e-4;  // of a pipeline message that the host waits for
  double power_exponent =
      0.5;  // a chip that is held to a share of its power runs at that power of it
  double block_scaled =
      0.95;  // 8-bit products with a scale for every 32 numbers, over those with one
  double tensor_exposed =
      0.6;  // of tensor-parallel collectives that are cut in pieces and run beside their products
  double link_efficiency = 0.78;     // of a link's rate that a collective reaches within a node
  double network_efficiency = 0.72;  // the same between nodes
  double link_latency = 3.4e-6;      // of a collective's step within a node, s
  double network_latency = 14e-6;    // the same between nodes
  double early_libraries = 0.80;     // rate of the first year's matrix kernels over later ones
  double straggler = 0.01;  // spread of a device's time, share of it: all wait for the slowest
  double contention =
      0.10;  // compute slowed down by communication that runs beside it, share of its time
  double overlap_power = 6;  // of the norm that two things beside each other take: endless is the
                             // longer of the two
  double step_seconds =
      0.004;  // of a step, besides: data, logging, the loss scale's synchronisation
};

struct Calibration {
  Physics physics;
  std::map<std::string, Efficiency> devices;
  std::vector<std::string> systems;  // of which runs were fitted
  std::vector<std::string> lent;     // fingerprints of those runs
};

/// The committed table (calibration_table.cpp), made by bench/published_runs.
const Calibration& calibration();
/// The device whose parameters stand for this one: the same chip with other memory, or the nearest
/// that has runs.
std::string calibrated_as(const std::string& device);
/// What a device of its kind reaches, before any run of it is known: where the fit begins.
Efficiency usual_efficiency(const Device& device);
/// The efficiency of a device as it was fitted, or as is usual where nothing like it was.
Efficiency fitted_efficiency(const Device& device);

}  // namespace lockstep::plan
