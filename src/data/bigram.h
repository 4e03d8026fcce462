// Smoothed bigram model over tokens: the baseline that a language model must beat.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/sequences.h"

namespace lockstep::data {

/// Interpolated Kneser-Ney model of order two (Chen and Goodman, 1999, section 2.8 and eq. 27 for
/// the discount). Its continuation distribution is itself discounted and interpolated with the
/// uniform distribution, so that every token has a nonzero probability and they sum to one:
///
///   p(w|v) = (c(v,w) - D)+ / c(v) + D n(v,.) / c(v) * q(w)
///   q(w) = (n(.,w) - E)+ / n(.,.) + E n(.) / n(.,.) / V
///
/// Memory grows with the number of distinct pairs.
class BigramModel {
 public:
  explicit BigramModel(int64_t vocabulary_size);

  /// Counts the pairs of a row: labels[t] after ids[t - 1], if labels[t] is not kIgnored.
  void count(std::span<const int64_t> ids, std::span<const int64_t> labels);
  /// Computes the discounts. Call after the last count() and before the first probability().
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

/// Returns the loss of a bigram model of `train` on `evaluation`, over the same rows and targets as
/// `lockstep eval`.
LossTotal bigram_loss(const SequenceView& train, const SequenceView& evaluation);

}  // namespace lockstep::data
