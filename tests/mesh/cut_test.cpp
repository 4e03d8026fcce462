// Tests of tensor slices.
#include "mesh/cut.h"

#include <gtest/gtest.h>

namespace lockstep::mesh {
namespace cut_test {

TEST(SplitEvenly, GivesTheFirstPartsOneMore) {
  EXPECT_EQ(split_evenly(7, 3, 0), (Range{0, 3}));
  EXPECT_EQ(split_evenly(7, 3, 1), (Range{3, 5}));
  EXPECT_EQ(split_evenly(7, 3, 2), (Range{5, 7}));
  EXPECT_EQ(split_evenly(2, 3, 2).size(), 0);
}

/// Returns the indices in the whole tensor of the slice's elements [begin, end).
std::vector<int64_t> elements_of(
    const Cut& cut, const std::vector<int64_t>& shape, int64_t begin, int64_t end) {
  std::vector<int64_t> found;
  visit_runs(cut, shape, begin, end, [&](int64_t local, int64_t whole, int64_t count) {
    EXPECT_EQ(local, begin + static_cast<int64_t>(found.size()));
    for (int64_t i = 0; i < count; ++i) {
      found.push_back(whole + i);
    }
  });
  return found;
}

TEST(Cut, CountsTheElementsOfAPartOfAnyDim) {
  const std::vector<int64_t> shape{3, 8, 2};
  for (const Cut& cut :
       {Cut{}, Cut{0, {{1, 3}}}, Cut{1, {{0, 1}, {4, 7}}}, Cut{2, {{1, 2}}}, Cut{1, {{5, 5}}}}) {
    std::vector<int64_t> expected;
    for (int64_t i = 0; i < 3 * 8 * 2; ++i) {
      const std::vector<int64_t> index{i / 16, i / 2 % 8, i % 2};
      bool is_mine = cut.is_whole();
      for (const Range& range : cut.ranges) {
        const int64_t at = index[static_cast<size_t>(cut.dim)];
        is_mine = is_mine || (at >= range.begin && at < range.end);
      }
      if (is_mine) {
        expected.push_back(i);
      }
    }
    const int64_t count = cut.elements(shape);
    ASSERT_EQ(count, static_cast<int64_t>(expected.size()));
    EXPECT_EQ(elements_of(cut, shape, 0, count), expected);
    for (int64_t begin = 0; begin <= count; ++begin) {
      for (int64_t end = begin; end <= count; ++end) {
        EXPECT_EQ(
            elements_of(cut, shape, begin, end),
            std::vector<int64_t>(expected.begin() + begin, expected.begin() + end));
      }
    }
  }
}

}  // namespace cut_test
}  // namespace lockstep::mesh
