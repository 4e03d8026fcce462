// Computes the number of steps of a run, and its intervals of logging, evaluation and saving.
#include "train/run_length.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::train {
namespace {

int64_t whole_steps(double steps, int64_t total) {
  const double count = steps < 1 ? std::ceil(static_cast<double>(total) * steps) : steps;
  return std::max<int64_t>(1, static_cast<int64_t>(count));
}

}  // namespace

RunLength run_length(const config::TrainingSection& training, int64_t steps_per_epoch) {
  RunLength length;
  const auto per_epoch = static_cast<double>(steps_per_epoch);
  length.steps_per_epoch = steps_per_epoch;
  length.total_steps = training.max_steps > 0
                           ? training.max_steps
                           : static_cast<int64_t>(std::ceil(training.num_train_epochs * per_epoch));
  length.epochs = static_cast<double>(length.total_steps) / per_epoch;
  length.logging_steps = whole_steps(training.logging_steps, length.total_steps);
  const double eval_steps = training.eval_steps.value_or(0);
  length.eval_steps =
      whole_steps(eval_steps > 0 ? eval_steps : training.logging_steps, length.total_steps);
  length.save_steps =
      training.save_steps > 0 ? whole_steps(training.save_steps, length.total_steps) : 0;
  return length;
}

bool is_due(std::string_view strategy, int64_t interval, const StepEnd& at) {
  if (strategy == "steps") {
    return at.run_ends || (interval > 0 && at.step % interval == 0);
  }
  return strategy == "epoch" && (at.run_ends || at.epoch_ends);
}

void check_sources(const data::SamplerOptions& options, const RunLength& length) {
  if (options.sources.empty()) {
    return;
  }
  const auto capacity = data::MixtureOrder(options.sources).capacity();
  const int64_t steps = data::Sampler(options, {}).steps_per_epoch();
  const int64_t needed =
      length.total_steps / steps * options.sequences +
      std::min(length.total_steps % steps * options.global_batch, options.sequences);
  if (capacity && *capacity < needed) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "the run needs {} sequences, but max_epochs of data.mixture's sources allow {}",
            needed,
            *capacity),
        fmt::format(
            "remove or raise max_epochs of a source, or train fewer steps (training.max_steps={}, "
            "training.num_train_epochs)",
            *capacity / options.sequences * steps));
  }
}

}  // namespace lockstep::train
