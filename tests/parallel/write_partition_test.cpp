// Tests of the write partition of replicated tensors.
#include "parallel/write_partition.h"

#include <vector>

#include <gtest/gtest.h>

namespace lockstep::parallel {
namespace shares_test {

const std::vector<std::pair<std::string, int64_t>> kTensors{
    {"h.0.bias", 5}, {"h.0.weight", 100}, {"h.1.bias", 0}, {"h.1.weight", 101}, {"wte", 1000}};

TEST(WritePartition, EachRankHasOneRunOfAboutAsMuch) {
  WritePartition shares;
  int64_t total = 0;
  for (auto tensor = kTensors.rbegin(); tensor != kTensors.rend(); ++tensor) {
    shares.add(tensor->first, 7, tensor->second);  // in any order
    total += tensor->second;
  }
  for (const int ranks : {1, 2, 3, 7, 2000}) {
    int64_t next = 0;  // ranges of all owners, contiguous
    for (int rank = 0; rank < ranks; ++rank) {
      const int64_t first = next;
      int64_t start = 0;
      for (const auto& [name, elements] : kTensors) {
        const auto [begin, end] = shares.of(name, 7, elements, rank, ranks);
        ASSERT_LE(0, begin);
        ASSERT_LE(begin, end);
        ASSERT_LE(end, elements);
        if (begin < end) {
          EXPECT_EQ(start + begin, next) << name << ", " << rank << " of " << ranks;
          next = start + end;
        }
        start += elements;
      }
      EXPECT_LE(next - first, total / ranks + 1);
    }
    EXPECT_EQ(next, total);
  }
}

TEST(WritePartition, OfWhatWasNotAddedEachRankHasAPart) {
  WritePartition shares;
  shares.add("weight", 0, 100);
  EXPECT_EQ(shares.of("weight", 0, 10, 0, 3), Owned(0, 3));  // its LoRA factors
  EXPECT_EQ(shares.of("weight", 0, 10, 2, 3), Owned(6, 10));
  EXPECT_EQ(shares.of("bias", 0, 0, 1, 3), Owned(0, 0));
}

}  // namespace shares_test
}  // namespace lockstep::parallel
