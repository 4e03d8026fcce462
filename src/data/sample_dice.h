// Random choices for the sample corpus. They are the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counter_random.h"

namespace lockstep::data {

class Dice {
 public:
  explicit Dice(uint64_t key) : key_(key) {}

  /// Returns a uniform random number in [0, n). n must be at least 1 and small.
  int64_t below(int64_t n) {
    return static_cast<int64_t>(
        (random_bits(key_, counter_++) >> 32) * static_cast<uint64_t>(n) >> 32);
  }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  bool chance(int64_t percent) { return below(100) < percent; }
  std::string pick(std::span<const std::string_view> list) {
    return std::string(list[static_cast<size_t>(below(static_cast<int64_t>(list.size())))]);
  }
  std::string pick(std::initializer_list<std::string_view> list) {
    return pick(std::span(list.begin(), list.size()));
  }
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (size_t i = list.size(); i > 1; --i) {
      std::swap(list[i - 1], list[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
    }
  }
  /// Returns `count` different entries of a list in random order.
  std::vector<std::string> some(std::span<const std::string_view> list, size_t count) {
    std::vector<std::string> all(list.begin(), list.end());
    shuffle(all);
    all.resize(count < all.size() ? count : all.size());
    return all;
  }

 private:
  uint64_t key_, counter_ = 0;
};

}  // namespace lockstep::data
