// Step progress of a worker, read by its agent. At the start of each step, the worker writes the
// first line of a file. The rank status (base/rank_status.h) is in the same file.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>

#include "base/rank_status.h"

namespace lockstep::launch {

/// Environment variable with the path of a worker's file.
inline constexpr const char* kStepFileVariable = kStatusFileVariable;

struct StepMark {
  int64_t step = 0;   // last step that started
  double began = 0;   // start of this step in seconds of the machine's monotonic clock
  double median = 0;  // median seconds of recent steps; 0: no step has ended
};

/// Returns the time in seconds on the clock of StepMark::began. All processes of a machine share
/// it.
double machine_seconds();

/// Worker's side. Writing takes about a microsecond. Not thread-safe.
class StepWriter {
 public:
  /// If the file cannot be opened, steps are not recorded.
  explicit StepWriter(const std::filesystem::path& path);
  ~StepWriter();
  StepWriter(const StepWriter&) = delete;
  StepWriter& operator=(const StepWriter&) = delete;

  void begin(int64_t step);

 private:
  int file_;
  double began_ = -1;
  std::deque<double> recent_;  // seconds of the last steps
};

/// Agent's side. Returns nullopt if the worker has not started a step.
std::optional<StepMark> read_step(const std::filesystem::path& path);

}  // namespace lockstep::launch
