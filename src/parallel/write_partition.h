// Who of those that hold the same tensors writes which part of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace lockstep::parallel {

/// The part [begin, end) of a tensor's elements that a rank owns.
using Owned = std::pair<int64_t, int64_t>;

/// Tensors laid end to end by their names, as files have them, and cut into as many runs as there
/// are ranks: what is not written in long runs costs more writes. All ranks add the same.
class WritePartition {
 public:
  /// Elements [begin, begin + elements) of a tensor.
  void add(const std::string& tensor, int64_t begin, int64_t elements) {
    runs_[{tensor, begin}] = {elements, 0};
    total_ = -1;
  }

  /// What `rank` of `ranks` owns of them. Of others, like factors of a tensor, each has a part.
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
    int64_t start = 0;  // of all, before it
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
