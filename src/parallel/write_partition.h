// Divides the work of writing replicated tensors among the ranks that hold them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace lockstep::parallel {

/// Range [begin, end) of a tensor's elements that a rank owns.
using Owned = std::pair<int64_t, int64_t>;

/// Lays tensors end to end in file order and divides them into one contiguous range per rank,
/// because short ranges cause more write calls. All ranks must add the same tensors.
class WritePartition {
 public:
  /// Adds the elements [begin, begin + elements) of a tensor.
  void add(const std::string& tensor, int64_t begin, int64_t elements) {
    runs_[{tensor, begin}] = {elements, 0};
    total_ = -1;
  }

  /// Returns the range that `rank` of `ranks` owns. A tensor that was not added, such as an adapter
  /// factor, is divided evenly among the ranks.
  Owned of(const std::string& tensor, int64_t begin, int64_t elements, int rank, int ranks) {
    if (total_ < 0) {
      lay_out();
    }
    const auto found = runs_.find({tensor, begin});
    if (found == runs_.end() || found->second.elements != elements) {
      return {elements * rank / ranks, elements * (rank + 1) / ranks};
    }
    const auto cut = [&](int64_t at) {
      const int64_t whole = total_ / ranks * at + total_ % ranks * at / ranks;
      return std::clamp(whole - found->second.start, int64_t{0}, elements);
    };
    return {cut(rank), cut(rank + 1)};
  }

 private:
  struct Run {
    int64_t elements = 0;
    int64_t start = 0;  // number of elements in all earlier runs
  };

  void lay_out() {
    total_ = 0;
    for (auto& [place, run] : runs_) {
      run.start = total_;
      total_ += run.elements;
    }
  }

  std::map<std::pair<std::string, int64_t>, Run> runs_;
  int64_t total_ = -1;
};

}  // namespace lockstep::parallel
