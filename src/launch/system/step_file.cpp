// Writes and reads the step progress of workers in a shared file.
#include "launch/system/step_file.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/format.h"

namespace lockstep::launch {
namespace {

constexpr size_t kRecentSteps = 31;

double median_of(const std::deque<double>& values) {
  if (values.empty()) {
    return 0;
  }
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace

double machine_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

StepWriter::StepWriter(const std::filesystem::path& path)
    // The file may exist already, because it also contains the mapped rank status
    // (base/rank_status.h).
    : file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) {}

StepWriter::~StepWriter() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

void StepWriter::begin(int64_t step) {
  const double now = machine_seconds();
  if (began_ >= 0) {
    recent_.push_back(now - began_);
    if (recent_.size() > kRecentSteps) {
      recent_.pop_front();
    }
  }
  began_ = now;
  // Written at a fixed length in a single call, so that a reader never sees parts of two marks.
  const std::string line = fmt::format("{:20} {:20.6f} {:20.6f}\n", step, now, median_of(recent_));
  [[maybe_unused]] const auto written = ::pwrite(file_, line.data(), line.size(), 0);
}

std::optional<StepMark> read_step(const std::filesystem::path& path) {
  std::ifstream file(path);
  StepMark mark;
  return file >> mark.step >> mark.began >> mark.median ? std::optional(mark) : std::nullopt;
}

}  // namespace lockstep::launch
