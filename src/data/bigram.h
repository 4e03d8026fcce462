// Smoothed bigram model of tokens, a baseline for language models.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/sequences.h"

namespace lockstep::data {

/// Interpolated Kneser-Ney model of order two (Chen and Goodman, 1999, section 2.8 and eq. 27 for
/// the discount). The continuation distribution is itself discounted and interpolated with the
/// uniform distribution. Every token therefore has a nonzero probability, and the probabilities sum
/// to one:
///
///   p(w|v) = (c(v,w) - D)+ / c(v) + D n(v,.) / c(v) * q(w)
///   q(w) = (n(.,w) - E)+ / n(.,.) + E n(.) / n(.,.) / V
///
/// Memory grows with the number of distinct pairs.
class BigramModel {
 public:
  explicit BigramModel(int64_t vocabulary_size);

  /// Counts the pairs (ids[t - 1], labels[t]) of a row for which labels[t] is not kIgnored.
  void count(std::span<const int64_t> ids, std::span<const int64_t> labels);
  /// Computes the discounts. Must be called after the last count() and before the first
  /// probability().
  void finish();
  double probability(int64_t previous, int64_t next) const;

 private:
  struct Slot {
    uint64_t pair = 0;  // previous * V + next + 1; 0: free
    uint32_t count = 0;
  };
  size_t slot_of(uint64_t pair) const;
  void grow();

  uint64_t vocabulary_size_;
  std::vector<Slot> slots_;  // open addressing, a power of two
  size_t used_ = 0;
  std::vector<uint64_t> context_count_;  // c(v)
  std::vector<uint32_t> followers_;      // n(v,.)
  std::vector<uint32_t> predecessors_;   // n(.,w)
  uint64_t distinct_ = 0, kinds_ = 0;    // n(.,.), tokens with a predecessor
  double discount_ = 0, continuation_discount_ = 0;
};

struct LossTotal {
  double sum = 0;       // nats
  int64_t targets = 0;  // number of labels
  double mean() const { return targets == 0 ? 0 : sum / static_cast<double>(targets); }
};

/// Trains a bigram model on `train` and returns its loss on `evaluation`. The loss is computed over
/// the same rows and targets as in `lockstep eval`.
LossTotal bigram_loss(const SequenceView& train, const SequenceView& evaluation);

}  // namespace lockstep::data
