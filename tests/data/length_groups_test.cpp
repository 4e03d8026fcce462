// Tests of the order that groups sequences by length.
#include "data/length_groups.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "data/sampler.h"
#include "data/sequences.h"
#include "data_testing.h"

namespace lockstep::data {
namespace length_groups_test {

DrawLengths random_lengths(int64_t count, int64_t most) {
  const Permutation order(count, 77);
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    lengths.push_back(static_cast<int32_t>(1 + order(i) % most));
  }
  return std::make_shared<const std::vector<int32_t>>(std::move(lengths));
}

/// get_length_grouped_indices of transformers/trainer_pt_utils.py, with the epoch's permutation.
std::vector<int64_t> grouped_there(
    const std::vector<int32_t>& lengths, int64_t batch, uint64_t key) {
  const auto count = static_cast<int64_t>(lengths.size());
  int64_t batches = std::min<int64_t>(count / (batch * 4), 50);
  batches = batches == 0 ? 1 : batches;
  const Permutation order(count, key);
  const auto length = [&](int64_t i) { return lengths[static_cast<size_t>(i)]; };
  std::vector<std::vector<int64_t>> groups;
  for (int64_t i = 0; i < count; ++i) {
    if (i % (batches * batch) == 0) {
      groups.emplace_back();
    }
    groups.back().push_back(order(i));
  }
  size_t fullest = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    std::stable_sort(groups[g].begin(), groups[g].end(), [&](int64_t a, int64_t b) {
      return length(a) > length(b);
    });
    fullest = length(groups[g][0]) > length(groups[fullest][0]) ? g : fullest;
  }
  std::swap(groups[0][0], groups[fullest][0]);
  std::vector<int64_t> all;
  for (const auto& group : groups) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

TEST(LengthGroups, OrderIsThatOfTransformers) {
  for (const int64_t count : {1, 2, 7, 16, 97, 1000}) {
    for (const int64_t batch : {1, 3, 8, 2000}) {
      for (const int64_t most : {1, 5, 300}) {
        const DrawLengths lengths = random_lengths(count, most);
        LengthGroups groups(lengths, batch);
        for (const uint64_t key : {4, 9}) {
          std::vector<int64_t> here;
          for (int64_t position = 0; position < count; ++position) {
            here.push_back(groups.sequence(key, position));
          }
          EXPECT_EQ(here, grouped_there(*lengths, batch, key)) << count << " " << batch;
          // Any position can be read first.
          EXPECT_EQ(LengthGroups(lengths, batch).sequence(key, count / 2), here[count / 2]);
        }
      }
    }
  }
}

TEST(LengthGroups, GroupsOf50BatchesNeedLittlePadding) {
  const DrawLengths lengths = random_lengths(4000, 500);
  LengthGroups groups(lengths, 8);
  std::set<int64_t> seen;
  int64_t padded = 0, filled = 0;
  for (int64_t begin = 0; begin < 4000; begin += 8) {
    int32_t longest = 0;
    for (int64_t position = begin; position < begin + 8; ++position) {
      const int64_t sequence = groups.sequence(1, position);
      seen.insert(sequence);
      const int32_t length = (*lengths)[static_cast<size_t>(sequence)];
      longest = std::max(longest, length);
      filled += length;
    }
    padded += 8 * longest;
  }
  EXPECT_EQ(seen.size(), 4000U);
  EXPECT_LT(static_cast<double>(padded - filled) / static_cast<double>(padded), 0.03);
  EXPECT_EQ((*lengths)[static_cast<size_t>(groups.sequence(1, 0))], 500);  // the longest one
}

/// Returns the sequences of the steps in order, over all ranks.
std::vector<int64_t> draw(SamplerOptions options, SamplerState start, int64_t steps) {
  std::vector<Sampler> ranks;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    ranks.emplace_back(options, start);
  }
  std::vector<int64_t> all;
  for (int64_t step = 0; step < steps; ++step) {
    for (Sampler& rank : ranks) {
      for (const auto& micro_batch : rank.next().micro_batches) {
        for (const Draw& drawn : micro_batch) {
          all.push_back(drawn.sequence);
        }
      }
    }
  }
  return all;
}

TEST(LengthGroups, RanksOnlyDivideTheOrderAndAResumeContinuesIt) {
  SamplerOptions options;
  options.sequences = 61;
  options.global_batch = 6;
  options.micro_batch = 6;
  options.order = SampleOrder::kGroupedByLength;
  options.lengths = random_lengths(61, 40);
  const std::vector<int64_t> whole = draw(options, {0, 0, 3}, 22);  // two epochs
  EXPECT_EQ(std::set(whole.begin(), whole.begin() + 61).size(), 61U);
  EXPECT_NE(
      std::vector(whole.begin(), whole.begin() + 61), std::vector(whole.begin() + 61, whole.end()));
  options.micro_batch = 2;
  for (options.ranks = 2; options.ranks <= 3; ++options.ranks) {
    EXPECT_EQ(draw(options, {0, 0, 3}, 22), whole) << options.ranks;
    EXPECT_EQ(draw(options, {0, 24, 3}, 7), std::vector(whole.begin() + 24, whole.begin() + 61));
  }
}

TEST(LengthGroups, LengthsAreThoseOfRowsSourcesAndTheLongestAnswer) {
  const TemporaryFolder folder;
  const auto set = TokenDataset::open(
      write_tokens(folder, {{{1, 2, 9, 3, 9}, 3}, {{4, 9}, 0}, {{5, 6, 9}, 1}, {{7, 9}, 1}}));
  const SequenceView rows(set, 4, Packing::kPerDocument, LongDocuments::kTruncate);
  EXPECT_EQ(*lengths_of_draws(rows), (std::vector<int32_t>{4, 2, 3, 2}));
  const SequenceView pairs(set, 4, Packing::kPairs, LongDocuments::kSplit, 7);
  EXPECT_EQ(*lengths_of_draws(pairs), (std::vector<int32_t>{3, 0, 1, 1}));
  AnswerRows answers;
  answers.roles = {RowRole::kChosen, RowRole::kRejected, RowRole::kChosen, RowRole::kRejected};
  answers.at_once = 2;
  EXPECT_EQ(*lengths_of_draws(SequenceView(set, 4, answers)), (std::vector<int32_t>{4, 3}));
}

}  // namespace length_groups_test
}  // namespace lockstep::data
