#include "train/machine/measuring.h"

#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/pulse.h"

namespace lockstep::train {
namespace {

constexpr double kFirst = 3, kShare = 0.2;  // seconds; of the time of the steps
constexpr double kForEach = 0.006;          // seconds of each measurement
constexpr double kLeastOfProcessor = 0.9;

}  // namespace

bool is_unmeasured(const World& world) {
  const char* const wanted = std::getenv("LOCKSTEP_MEASURE_MACHINE");
  std::error_code missing;
  return (wanted == nullptr || std::string_view(wanted) != "0") && world.device.is_cpu() &&
         !world.ranks_are_threads && world.size() == world.local_size &&
         !std::filesystem::exists(machine_file(world.size()), missing);
}

bool MeasuringBetweenSteps::is_due(double seconds) const {
  return world_.is_first() && wanted_ && seconds >= kFirst &&
         seconds_ <= kShare * (seconds - kFirst);
}

void MeasuringBetweenSteps::measure() {
  if (measuring_ == nullptr) {
    measuring_ = std::make_unique<MachineMeasuring>(world_.communicator, kForEach, true);
  }
  begin_phase("measuring this machine");
  seconds_ += measuring_->measure_next();
  if (measuring_->done()) {
    keep();
  }
}

void MeasuringBetweenSteps::finish() {
  while (measuring_ != nullptr) {
    measure();
  }
}

void MeasuringBetweenSteps::keep() {
  const double share = measuring_->share_of_processor();
  wanted_ = false;
  if (world_.is_first() && share < kLeastOfProcessor) {
    log_info(
        "this machine was measured in {:.1f} s between steps, while something else had {:.0f}% of "
        "its processors: the figures are not kept, and the next run measures it again",
        seconds_,
        100 * (1 - share));
  } else if (world_.is_first()) {
    const std::filesystem::path file = machine_file(world_.size());
    try {
      write_machine(measuring_->samples(), file, "`lockstep train` between its steps");
      log_info(
          "this machine was measured in {:.1f} s between steps: the next run here is told its time "
          "before it starts ({})",
          seconds_,
          file.string());
    } catch (const Error& error) {
      log_warning("what this machine does could not be kept: {}", error.message());
    }
  }
  measuring_.reset();
}

}  // namespace lockstep::train
