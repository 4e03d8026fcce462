// Measures a machine between training steps.
#include "train/machine/measuring.h"

#include <cstdlib>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/rank_status.h"

namespace lockstep::train {
namespace {

constexpr double kFirst = 3, kShare = 0.2;  // delay in seconds; share of the steps' time
constexpr double kForEach = 0.006;          // seconds per measurement
constexpr double kLeastOfProcessor = 0.9;

}  // namespace

bool should_measure(bool wanted, const RankContext& rank_context) {
  if (const char* const variable = std::getenv("LOCKSTEP_MEASURE_MACHINE")) {
    wanted = std::string_view(variable) != "0";
  }
  std::error_code missing;
  return wanted && rank_context.device.is_cpu() && !rank_context.ranks_are_threads &&
         rank_context.size() == rank_context.local_size &&
         !std::filesystem::exists(machine_file(rank_context.size()), missing);
}

bool MeasuringBetweenSteps::is_due(double seconds) const {
  return rank_context_.is_first() && wanted_ && seconds >= kFirst &&
         seconds_ <= kShare * (seconds - kFirst);
}

void MeasuringBetweenSteps::measure() {
  if (measuring_ == nullptr) {
    measuring_ = std::make_unique<MachineMeasuring>(rank_context_.communicator, kForEach, true);
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
  if (rank_context_.is_first() && share < kLeastOfProcessor) {
    log_info(
        "measured this machine in {:.1f} s between steps, but other programs used {:.0f}% of its "
        "processors: the results are discarded, and the next run measures again",
        seconds_,
        100 * (1 - share));
  } else if (rank_context_.is_first()) {
    const std::filesystem::path file = machine_file(rank_context_.size());
    try {
      write_machine(measuring_->samples(), file, "`lockstep train` between its steps");
      log_info(
          "measured this machine in {:.1f} s between steps: the next run on it predicts its step "
          "time ({})",
          seconds_,
          file.string());
    } catch (const Error& error) {
      log_warning("the measured results could not be saved: {}", error.message());
    }
  }
  measuring_.reset();
}

}  // namespace lockstep::train
