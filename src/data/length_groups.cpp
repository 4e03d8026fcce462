// Orders the sequences of an epoch so that batches contain similar lengths.
#include "data/length_groups.h"

#include <algorithm>
#include <utility>

#include "data/sequences.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMostBatches = 50;  // batches in a group, as in transformers
constexpr int64_t kFewestGroups = 4;

int64_t group_size_of(int64_t sequences, int64_t batch) {
  return std::clamp<int64_t>(sequences / kFewestGroups / batch, 1, kMostBatches) * batch;
}

int64_t length_of_draw(const SequenceView& view, int64_t draw) {
  if (view.has_sources()) {
    return view.source_tokens(draw);
  }
  int64_t longest = 0;
  for (int64_t row = draw * view.rows_at_once(); row < (draw + 1) * view.rows_at_once(); ++row) {
    longest = std::max(longest, view.tokens(row));
  }
  return longest;
}

}  // namespace

DrawLengths lengths_of_draws(const SequenceView& view) {
  std::vector<int32_t> lengths;
  lengths.reserve(static_cast<size_t>(view.size()));
  for (int64_t draw = 0; draw < view.size(); ++draw) {
    lengths.push_back(static_cast<int32_t>(length_of_draw(view, draw)));
  }
  return std::make_shared<const std::vector<int32_t>>(std::move(lengths));
}

LengthGroups::LengthGroups(DrawLengths lengths, int64_t batch)
    : lengths_(std::move(lengths)),
      group_size_(group_size_of(size(), batch)) {}

std::vector<int64_t> LengthGroups::sorted(int64_t group) const {
  std::vector<int64_t> members;
  const int64_t end = std::min((group + 1) * group_size_, size());
  for (int64_t position = group * group_size_; position < end; ++position) {
    members.push_back((*order_)(position));
  }
  std::ranges::stable_sort(
      members, std::ranges::greater(), [this](int64_t sequence) { return length(sequence); });
  return members;
}

void LengthGroups::begin_epoch(uint64_t key) {
  order_.emplace(size(), key);
  key_ = key;
  group_ = -1;
  int64_t place = 0;  // first position of a longest sequence
  longest_ = (*order_)(0);
  for (int64_t position = 1; position < size(); ++position) {
    const int64_t sequence = (*order_)(position);
    if (length(sequence) > length(longest_)) {
      longest_ = sequence;
      place = position;
    }
  }
  group_with_longest_ = place / group_size_;
  first_ = sorted(0).front();
}

int64_t LengthGroups::sequence(uint64_t key, int64_t position) {
  if (!order_ || key != key_) {
    begin_epoch(key);
  }
  if (const int64_t group = position / group_size_; group != group_) {
    members_ = sorted(group);
    group_ = group;
    if (group == group_with_longest_) {
      members_.front() = first_;
    }
    if (group == 0) {
      members_.front() = longest_;
    }
  }
  return members_[static_cast<size_t>(position % group_size_)];
}

}  // namespace lockstep::data
