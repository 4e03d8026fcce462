// Distributed sampler for torch::data::make_data_loader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <torch/data/samplers/base.h>

namespace lockstep {

struct DistributedSamplerOptions {
  int64_t rank = 0, ranks = 1;
  enum class Order { kShuffled, kSequential } order = Order::kShuffled;
  /// Handling of a data set size that is not divisible by the number of ranks: repeat the first
  /// samples at the end of the epoch, or drop the last samples of the epoch's order.
  enum class Remainder { kRepeat, kDrop } remainder = Remainder::kRepeat;
  uint64_t seed = 0;  // seed of the orders; must be the same on every rank
};

/// Every epoch has its own order, a function of (seed, epoch) that needs no memory. Rank r of R
/// draws the positions r, r + R, r + 2 R, ... of it: all ranks draw the same number of samples,
/// each sample is drawn once, and R ranks with batches of b draw the same samples in each step as
/// one rank with batches of R b. A DataLoader starts an epoch in each loop over it; an epoch that
/// is left early is not continued. The sampler does not communicate.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Throws Error (config) if the data set is empty or the rank is out of range.
  explicit DistributedSampler(size_t size, const DistributedSamplerOptions& options = {});

  /// Starts the next epoch; the first call, and a call after load(), starts or continues the
  /// current epoch. Called by DataLoader. If the size changes, the epoch restarts with the new
  /// size.
  void reset(std::optional<size_t> new_size = std::nullopt) override;
  /// Returns the next `batch_size` samples of this rank; fewer at the end of the epoch, then
  /// nullopt.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Saves the epoch and the position in it.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  int64_t epoch() const { return epoch_; }
  int64_t position() const { return position_; }
  /// Continues an epoch after `position` samples of this rank. The training loop must count the
  /// samples itself, because a loader prefetches.
  void go_on(int64_t epoch, int64_t position);

  int64_t samples_of_rank() const;

 private:
  int64_t size_;
  DistributedSamplerOptions options_;
  int64_t epoch_ = 0, position_ = 0;  // the position counts this rank's samples
  bool drawn_ = false;                // since the epoch was started or resumed
};

}  // namespace lockstep
