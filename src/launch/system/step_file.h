// How far a worker is, for its agent: the first line of a file that the worker writes at the
// beginning of each step, and the agent reads. Behind it is what it does now (base/rank_status.h).
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
  int64_t step = 0;   // that began last
  double began = 0;   // seconds of the machine's steady clock
  double median = 0;  // seconds of the last steps; 0: none has ended
};

/// Seconds of the clock that StepMark::began is of, which all processes of a machine share.
double machine_seconds();

/// The worker's side. Writing takes a microsecond. Not thread-safe.
class StepWriter {
 public:
  /// A file that cannot be made is left out: nobody will learn of the steps.
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

/// The agent's side; nothing where the worker has begun no step.
std::optional<StepMark> read_step(const std::filesystem::path& path);

}  // namespace lockstep::launch
