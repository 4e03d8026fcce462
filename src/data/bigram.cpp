// Implements a bigram model with absolute discounting.
#include "data/bigram.h"

#include <algorithm>
#include <cmath>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"

namespace lockstep::data {
namespace {

/// Returns the discount n1 / (n1 + 2 n2) of absolute discounting, clamped to (0, 1). n1 and n2 are
/// the numbers of bigrams seen once and twice.
double discount_of(uint64_t once, uint64_t twice) {
  constexpr double kLeast = 0.1;
  constexpr double kMost = 0.95;
  if (once == 0) {
    return kLeast;
  }
  const double estimate = static_cast<double>(once) / static_cast<double>(once + 2 * twice);
  return std::clamp(estimate, kLeast, kMost);
}

template <class Row>
void for_each_row(const SequenceView& view, const Row& row) {
  std::vector<int64_t> ids(static_cast<size_t>(view.length()));
  std::vector<int64_t> labels(ids.size());
  for (int64_t i = 0; i < view.size(); ++i) {
    const auto count = static_cast<size_t>(view.read(i, ids, labels));
    row(std::span<const int64_t>(ids).first(count), std::span<const int64_t>(labels).first(count));
  }
}

}  // namespace

BigramModel::BigramModel(int64_t vocabulary_size)
    : vocabulary_size_(static_cast<uint64_t>(vocabulary_size)),
      slots_(size_t{1} << 12) {
  if (vocabulary_size < 1 || vocabulary_size > int64_t{1} << 31) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("invalid vocabulary of {} tokens for a bigram model", vocabulary_size));
  }
  context_count_.resize(static_cast<size_t>(vocabulary_size));
  followers_.resize(static_cast<size_t>(vocabulary_size));
  predecessors_.resize(static_cast<size_t>(vocabulary_size));
}

size_t BigramModel::slot_of(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t at = mix_bits(pair) & mask;
  while (slots_[at].pair != 0 && slots_[at].pair != pair) {
    at = (at + 1) & mask;
  }
  return at;
}

void BigramModel::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.pair != 0) {
      slots_[slot_of(slot.pair)] = slot;
    }
  }
}

void BigramModel::count(std::span<const int64_t> ids, std::span<const int64_t> labels) {
  for (size_t t = 1; t < ids.size(); ++t) {
    if (labels[t] == kIgnored) {
      continue;
    }
    const auto previous = static_cast<uint64_t>(ids[t - 1]);
    const auto next = static_cast<uint64_t>(labels[t]);
    Slot& slot = slots_[slot_of(previous * vocabulary_size_ + next + 1)];
    if (slot.pair == 0) {
      slot.pair = previous * vocabulary_size_ + next + 1;
      ++used_;
    }
    ++slot.count;
    if (used_ * 4 > slots_.size() * 3) {
      grow();
    }
  }
}

void BigramModel::finish() {
  uint64_t once = 0;
  uint64_t twice = 0;
  for (const Slot& slot : slots_) {
    if (slot.pair == 0) {
      continue;
    }
    const uint64_t previous = (slot.pair - 1) / vocabulary_size_;
    const uint64_t next = (slot.pair - 1) % vocabulary_size_;
    context_count_[previous] += slot.count;
    ++followers_[previous];
    ++predecessors_[next];
    ++distinct_;
    once += slot.count == 1 ? 1 : 0;
    twice += slot.count == 2 ? 1 : 0;
  }
  discount_ = discount_of(once, twice);
  once = twice = 0;
  for (const uint32_t predecessors : predecessors_) {
    kinds_ += predecessors > 0 ? 1 : 0;
    once += predecessors == 1 ? 1 : 0;
    twice += predecessors == 2 ? 1 : 0;
  }
  continuation_discount_ = discount_of(once, twice);
}

double BigramModel::probability(int64_t previous, int64_t next) const {
  const auto v = static_cast<size_t>(previous);
  const auto w = static_cast<size_t>(next);
  const double uniform = 1 / static_cast<double>(vocabulary_size_);
  if (distinct_ == 0) {
    return uniform;
  }
  const auto distinct = static_cast<double>(distinct_);
  const double seen = std::max(0.0, predecessors_[w] - continuation_discount_);
  const double continuation =
      (seen + continuation_discount_ * static_cast<double>(kinds_) * uniform) / distinct;
  if (context_count_[v] == 0) {
    return continuation;
  }
  const Slot& slot = slots_[slot_of(v * vocabulary_size_ + w + 1)];
  const double kept = std::max(0.0, slot.count - discount_);
  return (kept + discount_ * followers_[v] * continuation) / static_cast<double>(context_count_[v]);
}

LossTotal bigram_loss(const SequenceView& train, const SequenceView& evaluation) {
  if (train.dataset().vocabulary_size() != evaluation.dataset().vocabulary_size()) {
    throw Error(
        ErrorKind::kData,
        fmt::format(
            "the datasets have different vocabularies: {} and {}",
            train.dataset().vocabulary_size(),
            evaluation.dataset().vocabulary_size()),
        "tokenize both with the same tokenizer");
  }
  BigramModel model(train.dataset().vocabulary_size());
  for_each_row(train, [&](auto ids, auto labels) { model.count(ids, labels); });
  model.finish();
  LossTotal total;
  for_each_row(evaluation, [&](auto ids, auto labels) {
    for (size_t t = 1; t < ids.size(); ++t) {
      if (labels[t] != kIgnored) {
        total.sum -= std::log(model.probability(ids[t - 1], labels[t]));
        ++total.targets;
      }
    }
  });
  return total;
}

}  // namespace lockstep::data
