// Measures what this machine does with the trainer's own operations.
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

/// Products of many shapes in both types, passes of small models, the optimizer, copies, and
/// all-reduces of many sizes, blocks of ring attention: the median of the runs within `seconds`
/// each, the slowest rank's. All ranks measure at the same time, as they will train. On the CPU.
class MachineMeasuring {
 public:
  /// `briefly`: passes of fewer tokens, in float32 fewer of them; each is run once after a first
  /// run, and oftener where that is shorter than `seconds`, instead of three times at least.
  /// `communicator` must outlive it.
  MachineMeasuring(comm::Communicator& communicator, double seconds, bool briefly);
  ~MachineMeasuring();
  MachineMeasuring(const MachineMeasuring&) = delete;
  MachineMeasuring& operator=(const MachineMeasuring&) = delete;

  bool done() const { return next_ == parts_.size(); }
  /// One part of about 20; returns the seconds that it took. Every rank must call.
  double measure_next();
  /// From 0 to 1: how much of the time of the passes the ranks had their processors. Below about
  /// 0.9 something else ran there, and the figures are of less than the machine. Every rank must
  /// call.
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

/// All of it at once. Every rank must call.
plan::MachineSamples measure_machine(comm::Communicator& communicator, double seconds);

/// Where the figures of this machine are kept, for so many ranks with as many threads as this
/// process has: machine-2x1-1a2b3c4d.yaml in the user's cache, by what processor it is, how many
/// there are and which instructions are used.
std::filesystem::path machine_file(int ranks);

/// Fits the rates and writes the cluster file, whose comment says `how` they were measured. Error
/// (environment) where that cannot be written.
void write_machine(
    plan::MachineSamples samples, const std::filesystem::path& file, const std::string& how);

}  // namespace lockstep::train
