// Random order in which neighboring sequences have similar lengths.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/permutation.h"

namespace lockstep::data {

class SequenceView;

/// Number of tokens of each draw of a view.
using DrawLengths = std::shared_ptr<const std::vector<int32_t>>;

/// Returns the lengths of the view's draws: the tokens of a row, of its source if rows are pairs,
/// or of the longest row of a group of answers. Requires a view without partner rows.
DrawLengths lengths_of_draws(const SequenceView& view);

/// Order of transformers' LengthGroupedSampler, except that a Permutation replaces torch.randperm.
/// An epoch's permutation is divided into groups of 50 batches, or fewer if there would be fewer
/// than four groups. Each group is sorted by length, longest first. The longest sequence of the
/// epoch is exchanged with the first one, so that memory runs out in the first step or never.
/// Copies are independent. Needs 4 bytes per sequence, and 8 for each sequence of a group.
class LengthGroups {
 public:
  /// `batch` is the number of sequences in a step, over all ranks.
  LengthGroups(DrawLengths lengths, int64_t batch);

  /// Returns the sequence at a position of the epoch whose permutation has this key. Positions are
  /// fast in ascending order: the first position of a group sorts the group, and the first one of
  /// an epoch reads the lengths of all sequences.
  int64_t sequence(uint64_t key, int64_t position);

 private:
  int32_t length(int64_t sequence) const { return (*lengths_)[static_cast<size_t>(sequence)]; }
  int64_t size() const { return static_cast<int64_t>(lengths_->size()); }
  /// Returns the permuted sequences of a group, longest first.
  std::vector<int64_t> sorted(int64_t group) const;
  void begin_epoch(uint64_t key);

  DrawLengths lengths_;
  int64_t group_size_;
  std::optional<Permutation> order_;  // of the current epoch
  uint64_t key_ = 0;
  int64_t group_with_longest_ = 0;
  int64_t first_ = 0, longest_ = 0;  // the two sequences of the epoch that are exchanged
  int64_t group_ = -1;               // the group in `members_`
  std::vector<int64_t> members_;
};

}  // namespace lockstep::data
