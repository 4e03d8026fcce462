// Step progress of a worker for its agent: the first line of a file, which the worker writes at the
// start of each step. The rank status (base/rank_status.h) follows in the same file.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>

#include "base/rank_status.h"

namespace lockstep::launch {

/// The variable that names a worker's file.
inline constexpr const char* kStepFileVariable = kStatusFileVariable;

struct StepMark {
  int64_t step = 0;   // the last step that started
  double began = 0;   // seconds of the machine's steady clock
  double median = 0;  // median seconds of recent steps; 0: none has ended
};

/// Seconds of the clock used by StepMark::began, which all processes of a machine share.
double machine_seconds();

/// The worker's side. Writing takes a microsecond. Not thread-safe.
class StepWriter {
 public:
  /// If the file cannot be created, steps are not recorded.
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

/// The agent's side; nullopt if the worker has started no step.
std::optional<StepMark> read_step(const std::filesystem::path& path);

}  // namespace lockstep::launch
