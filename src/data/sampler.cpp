// Determines the order of sequences and divides them among ranks.
#include "data/sampler.h"

#include <algorithm>
#include <utility>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "data/divide.h"
#include "data/permutation.h"

namespace lockstep::data {
namespace {

/// Returns the start of part i if `whole` is divided into `parts` parts whose sizes differ by at
/// most one.
int64_t part_begin(int64_t whole, int64_t i, int64_t parts) {
  return whole / parts * i + std::min(i, whole % parts);
}

void check(const SamplerOptions& options, const SamplerState& state) {
  if (options.global_batch < 1 || options.micro_batch < 1 || options.ranks < 1 ||
      options.rank < 0 || options.rank >= options.ranks) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "invalid step: {} sequences, {} at once, on rank {} of {}",
            options.global_batch,
            options.micro_batch,
            options.rank,
            options.ranks),
        "batch sizes and the number of ranks must be at least 1");
  }
  if (options.sequences < 1) {
    throw Error(ErrorKind::kData, "the data contains no sequence", "name files that are not empty");
  }
  const int64_t batch = options.batch > 0 ? options.batch : options.global_batch;
  if (options.drop_last && options.sequences < batch) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "an epoch has {} sequences, fewer than the {} of a batch, and dataloader_drop_last "
            "skips short batches: no step is left",
            options.sequences,
            batch),
        "set dataloader_drop_last=false, or reduce the batch size or data.sequence_length");
  }
  if (state.epoch < 0 || state.position < 0 || state.position > options.sequences) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the sampler is at sequence {} of epoch {}, but the data has {} sequences",
            state.position,
            state.epoch,
            options.sequences),
        "resume with the data and data.sequence_length of the checkpoint");
  }
}

}  // namespace

Sampler::Sampler(SamplerOptions options, SamplerState start)
    : options_(std::move(options)),
      state_(start) {
  check(options_, state_);
  if (options_.order == SampleOrder::kGroupedByLength) {
    groups_.emplace(options_.lengths, options_.global_batch);
  }
  if (options_.sources.empty()) {
    return;
  }
  mixture_.emplace(options_.sources);
  int64_t sequences = 0;
  for (const MixtureSource& source : options_.sources) {
    first_.push_back(sequences);
    sequences += source.sequences;
  }
  if (sequences != options_.sequences) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "{} sequences do not match the {} of the sources", options_.sequences, sequences));
  }
}

int64_t Sampler::epoch_sequences() const {
  return options_.drop_last ? options_.sequences / batch() * batch() : options_.sequences;
}

int64_t Sampler::steps_per_epoch() const {
  return divide_up(epoch_sequences(), options_.global_batch);
}

std::vector<int64_t> Sampler::draw_of_mixture(int64_t count) {
  mixture_->advance_to(state_.epoch * options_.sequences + state_.position);
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < count; ++i) {
    const MixtureOrder::Sample sample = mixture_->next();
    const int64_t sequences = options_.sources[sample.source].sequences;
    const int64_t position = sample.index % sequences;
    const uint64_t key = derive_key(derive_key(state_.seed, 0x315e), sample.source);
    const Permutation order(
        sequences, derive_key(key, static_cast<uint64_t>(sample.index / sequences)));
    drawn.push_back(
        first_[sample.source] +
        (options_.order == SampleOrder::kRandom ? order(position) : position));
  }
  return drawn;
}

int64_t Sampler::sequence_at(int64_t position) {
  const uint64_t key =
      derive_key(derive_key(state_.seed, 0x5a3b), static_cast<uint64_t>(state_.epoch));
  return groups_                                  ? groups_->sequence(key, position)
         : options_.order == SampleOrder::kRandom ? Permutation(options_.sequences, key)(position)
                                                  : position;
}

StepDraws Sampler::next() {
  const int64_t last = epoch_sequences();
  const auto end_epoch = [&] {
    if (state_.position >= last) {
      ++state_.epoch;
      state_.position = 0;
    }
  };
  end_epoch();  // a checkpoint of other options can be at a position that this epoch does not have
  StepDraws step;
  step.samples = std::min(options_.global_batch, last - state_.position);
  const std::vector<int64_t> mixed =
      mixture_ ? draw_of_mixture(step.samples) : std::vector<int64_t>();
  const int64_t begin = part_begin(step.samples, options_.rank, options_.ranks);
  const int64_t share = part_begin(step.samples, options_.rank + 1, options_.ranks) - begin;
  const int64_t largest = divide_up(step.samples, options_.ranks);
  const int64_t micro_batches = divide_up(largest, options_.micro_batch);
  for (int64_t m = 0; m < micro_batches; ++m) {
    std::vector<Draw>& draws = step.micro_batches.emplace_back();
    const int64_t end = part_begin(share, m + 1, micro_batches);
    for (int64_t i = part_begin(share, m, micro_batches); i < end; ++i) {
      const int64_t position = state_.position + begin + i;
      draws.push_back(
          {mixture_ ? mixed[static_cast<size_t>(begin + i)] : sequence_at(position),
           state_.epoch * options_.sequences + position});
    }
  }
  state_.position += step.samples;
  end_epoch();
  step.after = state_;
  step.epoch =
      static_cast<double>(state_.epoch) + static_cast<double>(divide_up(state_.position, batch())) /
                                              static_cast<double>(divide_up(last, batch()));
  if (mixture_) {
    step.taken = mixture_->taken();
  }
  return step;
}

}  // namespace lockstep::data
