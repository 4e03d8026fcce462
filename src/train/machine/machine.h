// Measures this machine's speed with the trainer's own operations.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "plan/machine.h"

namespace lockstep::train {

class Measurer;

/// Measures matrix products of many shapes in both types, passes of small models, the optimizer,
/// copies, all-reduces of many sizes and blocks of ring attention, on the CPU. Each operation is
/// repeated for `seconds`; the result is the median time on the slowest rank. All ranks measure at
/// the same time, as in training.
class MachineMeasuring {
 public:
  /// With `briefly`, passes have fewer tokens, and there are fewer float32 passes. Each operation
  /// then runs at least once after its first run, instead of three times. `communicator` must
  /// outlive the object.
  MachineMeasuring(comm::Communicator& communicator, double seconds, bool briefly);
  ~MachineMeasuring();
  MachineMeasuring(const MachineMeasuring&) = delete;
  MachineMeasuring& operator=(const MachineMeasuring&) = delete;

  bool done() const { return next_ == parts_.size(); }
  /// Runs one of about 20 measurements and returns its duration in seconds. Must be called on every
  /// rank.
  double measure_next();
  /// Returns CPU time / wall time of the passes, from 0 to 1. Below about 0.9, another program
  /// competed for the processors, and the measured speeds are too low. Must be called on every
  /// rank.
  double share_of_processor();
  plan::MachineSamples samples() const;

 private:
  void measure_reductions();

  std::unique_ptr<Measurer> measurer_;
  plan::MachineSamples samples_;
  std::vector<double> spreads_;
  std::vector<std::function<void()>> parts_;
  size_t next_ = 0;
};

/// Runs all measurements. Must be called on every rank.
plan::MachineSamples measure_machine(comm::Communicator& communicator, double seconds);

/// Returns the path of this machine's results for `ranks` ranks with the current number of threads:
/// machine-2x1-1a2b3c4d.yaml in the user's cache folder. The hash depends on the processor type,
/// its number of threads and the instruction set.
std::filesystem::path machine_file(int ranks);

/// Fits the rates and writes the cluster file. `how` becomes part of its comment. Throws Error
/// (environment) if the file cannot be written.
void write_machine(
    plan::MachineSamples samples, const std::filesystem::path& file, const std::string& how);

}  // namespace lockstep::train
