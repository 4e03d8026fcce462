// Divides the writing of replicated tensors among their holders.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace lockstep::parallel {

/// The range [begin, end) of a tensor's elements that a rank owns.
using Owned = std::pair<int64_t, int64_t>;

/// Tensors laid end to end in the order of the files and cut into one contiguous run per rank,
/// because short runs cost more writes. All ranks add the same tensors.
class WritePartition {
 public:
  /// Adds elements [begin, begin + elements) of a tensor.
  void add(const std::string& tensor, int64_t begin, int64_t elements) {
    runs_[{tensor, begin}] = {elements, 0};
    total_ = -1;
  }

  /// The range that `rank` of `ranks` owns. For tensors that were not added, such as adapter
  /// factors, each rank owns a slice.
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
    int64_t start = 0;  // elements of all earlier runs
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
