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
  /// Handling of data set sizes that are not divisible by the number of ranks: repeat the first
  /// samples at the end of the epoch, or drop the last samples of the epoch's order.
  enum class Remainder { kRepeat, kDrop } remainder = Remainder::kRepeat;
  uint64_t seed = 0;  // seed of the sample order; must be the same on all ranks
};

/// Sampler for one rank. Each epoch has its own order, which is a function of (seed, epoch) and
/// needs no memory. Rank r of R draws positions r, r + R, r + 2 R, ... of it. All ranks draw the
/// same number of samples, and each sample is drawn once. R ranks with batch size b draw the same
/// samples in each step as one rank with batch size R b. A DataLoader starts a new epoch in each
/// loop over it, even if the previous epoch was not finished. The sampler does not communicate.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Throws Error (config) if the data set is empty or the rank is out of range.
  explicit DistributedSampler(size_t size, const DistributedSamplerOptions& options = {});

  /// Starts the next epoch. The first call, and a call after load(), starts or continues the
  /// current epoch. Called by DataLoader. If the size changes, the epoch restarts with the new
  /// size.
  void reset(std::optional<size_t> new_size = std::nullopt) override;
  /// Returns the next `batch_size` samples of this rank. At the end of the epoch, returns fewer
  /// samples and then nullopt.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// Saves the epoch and the position within it.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  int64_t epoch() const { return epoch_; }
  int64_t position() const { return position_; }
  /// Continues an epoch after `position` samples of this rank. The training loop must count the
  /// samples itself because a loader prefetches.
  void go_on(int64_t epoch, int64_t position);

  int64_t samples_of_rank() const;

 private:
  int64_t size_;
  DistributedSamplerOptions options_;
  int64_t epoch_ = 0, position_ = 0;  // position: samples of this rank
  bool drawn_ = false;                // samples were drawn since the epoch was started or resumed
};

}  // namespace lockstep
