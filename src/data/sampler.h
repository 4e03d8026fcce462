// Sampler. It selects the sequences that a rank processes in each step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/length_groups.h"
#include "data/mixture.h"

namespace lockstep::data {

/// Position of the sampler, as saved in checkpoints. Independent of the number of ranks.
struct SamplerState {
  int64_t epoch = 0;
  int64_t position = 0;  // sequences of this epoch that are completed
  uint64_t seed = 0;
  bool operator==(const SamplerState&) const = default;
};

enum class SampleOrder { kRandom, kSequential, kGroupedByLength };

struct SamplerOptions {
  int64_t sequences = 0;     // size of the dataset
  int64_t global_batch = 1;  // sequences per optimizer step, over all ranks
  int64_t micro_batch = 1;   // maximum number of rows in a micro-batch
  int64_t rank = 0;          // data-parallel rank
  int64_t ranks = 1;         // data-parallel size
  SampleOrder order = SampleOrder::kRandom;
  DrawLengths lengths = nullptr;  // of all sequences; only for kGroupedByLength
  int64_t batch = 0;              // sequences of one micro-batch, over all ranks; 0: global_batch
  bool drop_last = false;  // dataloader_drop_last: skip the last batch of an epoch if it is short
  /// Sources of a mixture, in the order in which their sequences make up `sequences`. Samples are
  /// drawn according to the sources' weights (data/mixture.h). Each source has its own random
  /// order, one pass after another. An epoch has as many samples as there are sequences. If empty,
  /// there is a single source, and each of its sequences is drawn once per epoch.
  std::vector<MixtureSource> sources;
};

/// Drawn sequence. `sample` is its number in the endless stream of draws, epoch * sequences +
/// position.
struct Draw {
  int64_t sequence = 0, sample = 0;
};

/// Part of a step that a rank processes. Every rank has the same number of micro-batches, at least
/// one. If a step has too few sequences, some micro-batches are empty.
struct StepDraws {
  std::vector<std::vector<Draw>> micro_batches;
  int64_t samples = 0;  // number of samples in the step, over all ranks
  SamplerState after;
  double epoch = 0;  // after the step; a fraction counts batches, as in Hugging Face's Trainer
  std::vector<int64_t>
      taken;  // for a mixture: samples drawn from each source so far, over all ranks
};

/// Order of the sequences, a function of (seed, epoch) that needs no memory, unless sequences are
/// grouped by length (data/length_groups.h). The ranks only divide it. A step takes the next
/// global_batch sequences of the epoch, or the rest of the epoch. They are divided into R
/// consecutive parts for R ranks, and each part into micro-batches; sizes differ by at most one.
/// For any number of ranks, no sequence is lost or repeated. A resume takes no time, except that
/// for a mixture the completed samples are drawn again (without reading them).
class Sampler {
 public:
  /// Throws Error (config or data) if no step is possible, or if the state belongs to another
  /// dataset.
  Sampler(SamplerOptions options, SamplerState start);

  StepDraws next();
  const SamplerState& state() const { return state_; }
  int64_t steps_per_epoch() const;

 private:
  /// Returns the sequence at a position of this epoch, without a mixture.
  int64_t sequence_at(int64_t position);
  int64_t batch() const { return options_.batch > 0 ? options_.batch : options_.global_batch; }
  /// Returns the number of sequences that an epoch uses.
  int64_t epoch_sequences() const;
  /// Returns the sequences of the next `count` positions of this epoch.
  std::vector<int64_t> draw_of_mixture(int64_t count);

  SamplerOptions options_;
  SamplerState state_;
  std::optional<MixtureOrder> mixture_;
  std::optional<LengthGroups> groups_;
  std::vector<int64_t> first_;  // first sequence of each source
};

}  // namespace lockstep::data
