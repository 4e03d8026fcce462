// Sampler: the sequences that a rank processes in each step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/mixture.h"

namespace lockstep::data {

/// Position of the sampler in a checkpoint, independent of the number of ranks.
struct SamplerState {
  int64_t epoch = 0;
  int64_t position = 0;  // completed sequences of this epoch
  uint64_t seed = 0;
  bool operator==(const SamplerState&) const = default;
};

enum class SampleOrder { kRandom, kSequential };

struct SamplerOptions {
  int64_t sequences = 0;     // size of the dataset
  int64_t global_batch = 1;  // sequences of one optimizer step, over all ranks
  int64_t micro_batch = 1;   // maximum rows per micro-batch of a rank
  int64_t rank = 0;          // data-parallel rank
  int64_t ranks = 1;         // data-parallel size
  SampleOrder order = SampleOrder::kRandom;
  bool drop_last = false;  // dataloader_drop_last: skip the short last step of an epoch
  /// For a mixture: the sources that make up `sequences`, in order. Samples are drawn by the
  /// sources' weights (data/mixture.h). Each source has its own random order, pass after pass. An
  /// epoch has as many samples as there are sequences. If empty, there is a single source, and each
  /// sequence is drawn once per epoch.
  std::vector<MixtureSource> sources;
};

/// One drawn sequence. `sample` is its number in the endless stream of draws: epoch * sequences +
/// position.
struct Draw {
  int64_t sequence = 0, sample = 0;
};

/// A rank's work in one step. Every rank has the same number of micro-batches, at least one; some
/// may be empty if a step has too few sequences.
struct StepDraws {
  std::vector<std::vector<Draw>> micro_batches;
  int64_t samples = 0;  // in the step, over all ranks
  SamplerState after;
  double epoch = 0;  // after the step, as a fraction
  std::vector<int64_t>
      taken;  // for a mixture: samples drawn from each source so far, over all ranks
};

/// The order is a function of (seed, epoch) and needs no memory; ranks only divide it. A step takes
/// the next global_batch sequences of the epoch, or the rest of it; rank r of R gets the r-th of R
/// consecutive parts, whose sizes differ by at most one, and divides it the same way among its
/// micro-batches. Nothing is lost or repeated on any number of ranks, and a resume costs nothing
/// (for a mixture: drawing the finished samples again without reading them).
class Sampler {
 public:
  /// Throws Error (config or data) if no step is possible, or if the state belongs to another
  /// data set.
  Sampler(SamplerOptions options, SamplerState start);

  StepDraws next();
  const SamplerState& state() const { return state_; }
  int64_t steps_per_epoch() const;

 private:
  /// Returns the sequences of the next `count` positions of this epoch.
  std::vector<int64_t> draw_of_mixture(int64_t count);

  SamplerOptions options_;
  SamplerState state_;
  std::optional<MixtureOrder> mixture_;
  std::vector<int64_t> first_;  // first sequence of each source
};

}  // namespace lockstep::data
