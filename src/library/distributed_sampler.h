// Which samples of a data set each rank draws, for torch::data::make_data_loader.
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
  /// Where the samples do not divide by the ranks: the first ones are drawn again at the end of the
  /// epoch, or the last ones of the epoch's order are left out.
  enum class Remainder { kRepeat, kDrop } remainder = Remainder::kRepeat;
  uint64_t seed = 0;  // of the orders; the same on every rank
};

/// Every epoch has an order of its own, a function of (seed, epoch) that takes no memory. Rank r of
/// R draws the places r, r + R, r + 2 R, ... of it: all ranks equally many, each sample once, and R
/// ranks with batches of b draw in each step what one rank with batches of R b does. A DataLoader
/// begins an epoch with each loop over it; an epoch that was left early is not gone on with.
/// Nothing here communicates.
class DistributedSampler : public torch::data::samplers::Sampler<> {
 public:
  /// Error (config) where there is no sample, or the rank is none of the ranks.
  explicit DistributedSampler(size_t size, const DistributedSamplerOptions& options = {});

  /// Begins the next epoch; the first call, and one after load(), begins or goes on with the epoch
  /// at hand. A DataLoader calls it. Where the size changes, the epoch begins anew with it.
  void reset(std::optional<size_t> new_size = std::nullopt) override;
  /// The next samples of this rank: `batch_size` of them, fewer at the end of the epoch, then
  /// nothing.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  /// The epoch and how far it was drawn.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  int64_t epoch() const { return epoch_; }
  int64_t position() const { return position_; }
  /// Goes on in an epoch where `position` of this rank's samples are drawn: a loader reads ahead,
  /// so what a training loop has done is its own to count.
  void go_on(int64_t epoch, int64_t position);

  int64_t samples_of_rank() const;

 private:
  int64_t size_;
  DistributedSamplerOptions options_;
  int64_t epoch_ = 0, position_ = 0;  // position: of this rank's samples
  bool drawn_ = false;                // since the epoch began or was gone on with
};

}  // namespace lockstep
