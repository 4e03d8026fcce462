// Implements a sampler that divides a data set among ranks.
#include "library/distributed_sampler.h"

#include <algorithm>

#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>
#include <torch/types.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "data/permutation.h"

namespace lockstep {

DistributedSampler::DistributedSampler(size_t size, const DistributedSamplerOptions& options)
    : size_(static_cast<int64_t>(size)),
      options_(options) {
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("rank {} is out of range for {} ranks", options.rank, options.ranks),
        "use rank and ranks of the communicator");
  }
  if (samples_of_rank() < 1) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} samples for {} ranks: a rank would have none", size, options.ranks),
        "use fewer ranks, or Remainder::kRepeat");
  }
}

int64_t DistributedSampler::samples_of_rank() const {
  const bool repeats = options_.remainder == DistributedSamplerOptions::Remainder::kRepeat;
  return (size_ + (repeats ? options_.ranks - 1 : 0)) / options_.ranks;
}

void DistributedSampler::reset(std::optional<size_t> new_size) {
  if (new_size && static_cast<int64_t>(*new_size) != size_) {
    *this = DistributedSampler(*new_size, options_);
    return;
  }
  if (drawn_ || position_ >= samples_of_rank()) {
    ++epoch_;
    position_ = 0;
    drawn_ = false;
  }
}

std::optional<std::vector<size_t>> DistributedSampler::next(size_t batch_size) {
  const int64_t end = std::min(position_ + static_cast<int64_t>(batch_size), samples_of_rank());
  if (position_ >= end) {
    return std::nullopt;
  }
  const data::Permutation order(size_, derive_key(options_.seed, static_cast<uint64_t>(epoch_)));
  std::vector<size_t> batch;
  batch.reserve(static_cast<size_t>(end - position_));
  for (; position_ < end; ++position_) {
    const int64_t place = (position_ * options_.ranks + options_.rank) % size_;
    const bool shuffled = options_.order == DistributedSamplerOptions::Order::kShuffled;
    batch.push_back(static_cast<size_t>(shuffled ? order(place) : place));
  }
  drawn_ = true;
  return batch;
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", torch::tensor(epoch_, torch::kInt64), /*is_buffer=*/true);
  archive.write("position", torch::tensor(position_, torch::kInt64), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch = torch::empty({1}, torch::kInt64), position = epoch.clone();
  archive.read("epoch", epoch, /*is_buffer=*/true);
  archive.read("position", position, /*is_buffer=*/true);
  go_on(epoch.item<int64_t>(), position.item<int64_t>());
}

void DistributedSampler::go_on(int64_t epoch, int64_t position) {
  if (epoch < 0 || position < 0 || position > samples_of_rank()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "epoch {}, position {} does not exist in a sampler with {} samples per rank",
            epoch,
            position,
            samples_of_rank()),
        "continue with the same data set and number of ranks");
  }
  epoch_ = epoch;
  position_ = position;
  drawn_ = false;
}

}  // namespace lockstep
