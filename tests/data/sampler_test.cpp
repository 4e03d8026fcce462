// Tests of the sampler and its permutation.
#include "data/sampler.h"

#include <map>
#include <set>

#include "data/permutation.h"
#include "data_testing.h"

namespace lockstep::data {
namespace sampler_test {

TEST(Permutation, IsABijectionOfEverySmallRange) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 64, 65, 997, 4096, 10007}) {
    const Permutation order(n, 42);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t x = order(i);
      ASSERT_GE(x, 0);
      ASSERT_LT(x, n);
      seen.insert(x);
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(n));
  }
  const Permutation huge(int64_t{1} << 62, 1);
  EXPECT_LT(huge((int64_t{1} << 62) - 1), int64_t{1} << 62);
  EXPECT_THROW(Permutation(0, 1), Error);
}

TEST(Permutation, GivesEveryPlaceItsShare) {
  // Positions of five elements over 5,000 keys: about 1,000 times each.
  std::map<std::pair<int64_t, int64_t>, int> counts;
  for (uint64_t key = 0; key < 5000; ++key) {
    const Permutation order(5, key);
    for (int64_t i = 0; i < 5; ++i) {
      ++counts[{i, order(i)}];
    }
  }
  EXPECT_EQ(counts.size(), 25U);
  for (const auto& [place, count] : counts) {
    EXPECT_NEAR(count, 1000, 150) << place.first << " " << place.second;
  }
  // Neighbors are separated.
  const Permutation order(100'003, 9);
  int64_t near = 0;
  for (int64_t i = 1; i < 100'003; ++i) {
    near += std::abs(order(i) - order(i - 1)) <= 10 ? 1 : 0;
  }
  EXPECT_LT(near, 60);  // 20 are expected
}

using Order = std::vector<std::pair<int64_t, int64_t>>;  // sequence, sample

/// Returns all draws of `steps` steps on `ranks` ranks in sample order, and checks the invariants
/// of each step.
Order draw(SamplerOptions options, SamplerState start, int64_t steps) {
  std::vector<Sampler> ranks;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    ranks.emplace_back(options, start);
  }
  Order all;
  for (int64_t step = 0; step < steps; ++step) {
    size_t micro_batches = 0;
    int64_t samples = 0;
    int64_t declared = 0;
    std::set<size_t> shares;
    for (Sampler& rank : ranks) {
      const StepDraws draws = rank.next();
      EXPECT_TRUE(micro_batches == 0 || micro_batches == draws.micro_batches.size());
      micro_batches = draws.micro_batches.size();
      declared = draws.samples;
      size_t share = 0;
      for (const auto& micro_batch : draws.micro_batches) {
        EXPECT_LE(micro_batch.size(), static_cast<size_t>(options.micro_batch));
        for (const Draw& drawn : micro_batch) {
          all.emplace_back(drawn.sequence, drawn.sample);
        }
        share += micro_batch.size();
      }
      samples += static_cast<int64_t>(share);
      shares.insert(share);
      EXPECT_EQ(draws.after, ranks.front().state());
    }
    EXPECT_GE(micro_batches, 1U);
    EXPECT_EQ(samples, declared);
    EXPECT_LE(*shares.rbegin() - *shares.begin(), 1U);
  }
  return all;
}

TEST(Sampler, LosesAndRepeatsNothingOnAnyNumberOfRanks) {
  for (const int64_t sequences : {1, 2, 3, 5, 7, 8, 13, 31, 64, 97}) {
    for (const int64_t global_batch : {1, 2, 3, 8, 11, 100}) {
      SamplerOptions options;
      options.sequences = sequences;
      options.global_batch = global_batch;
      options.micro_batch = global_batch;
      const int64_t epoch = Sampler(options, {0, 0, 5}).steps_per_epoch();
      const Order one = draw(options, {0, 0, 5}, 2 * epoch);
      ASSERT_EQ(one.size(), static_cast<size_t>(2 * sequences));
      for (const int64_t half : {0, 1}) {
        std::set<int64_t> seen;
        for (int64_t i = 0; i < sequences; ++i) {
          const auto& [sequence, sample] = one[static_cast<size_t>(half * sequences + i)];
          seen.insert(sequence);
          EXPECT_EQ(sample, half * sequences + i);
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(sequences));
      }
      for (const int64_t ranks : {2, 3, 4, 7}) {
        for (const int64_t micro_batch : {1, 2, 3}) {
          options.ranks = ranks;
          options.micro_batch = micro_batch;
          EXPECT_EQ(draw(options, {0, 0, 5}, 2 * epoch), one)
              << sequences << " " << global_batch << " " << ranks << " " << micro_batch;
        }
      }
    }
  }
}

TEST(Sampler, ContinuesOnOtherRanksAndBatches) {
  SamplerOptions options;
  options.sequences = 53;
  options.global_batch = 8;
  options.micro_batch = 4;
  const Order whole = draw(options, {0, 0, 9}, 14);
  Sampler sampler(options, {0, 0, 9});
  for (int step = 0; step < 5; ++step) {
    sampler.next();
  }
  const SamplerState state = sampler.state();
  EXPECT_EQ(state, (SamplerState{0, 40, 9}));
  options.ranks = 3;
  options.global_batch = 6;
  const Order rest = draw(options, state, 2);  // 6 and 6 of the remaining 13
  EXPECT_EQ(rest, Order(whole.begin() + 40, whole.begin() + 52));
}

TEST(Sampler, OrderDependsOnSeedAndEpochOnly) {
  SamplerOptions options;
  options.sequences = 100;
  options.global_batch = 100;
  options.micro_batch = 100;
  const auto sequences = [&](SamplerState state) {
    std::vector<int64_t> out;
    for (const auto& [sequence, sample] : draw(options, state, 1)) {
      out.push_back(sequence);
    }
    return out;
  };
  EXPECT_EQ(sequences({0, 0, 1}), sequences({0, 0, 1}));
  EXPECT_NE(sequences({0, 0, 1}), sequences({1, 0, 1}));
  EXPECT_NE(sequences({0, 0, 1}), sequences({0, 0, 2}));
  options.order = SampleOrder::kSequential;
  const auto plain = sequences({3, 0, 1});
  EXPECT_TRUE(std::is_sorted(plain.begin(), plain.end()));
}

TEST(Sampler, LeavesTheShortStepOutOnRequest) {
  SamplerOptions options;
  options.sequences = 10;
  options.global_batch = 4;
  options.micro_batch = 4;
  options.drop_last = true;
  Sampler sampler(options, {0, 0, 1});
  EXPECT_EQ(sampler.steps_per_epoch(), 2);
  EXPECT_EQ(sampler.next().after, (SamplerState{0, 4, 1}));
  const StepDraws second = sampler.next();
  EXPECT_EQ(second.after, (SamplerState{1, 0, 1}));
  EXPECT_EQ(second.epoch, 1.0);
  EXPECT_EQ(sampler.next().micro_batches.front().front().sample, 10);
  options.drop_last = false;
  Sampler whole(options, {0, 0, 1});
  EXPECT_EQ(whole.steps_per_epoch(), 3);
  EXPECT_DOUBLE_EQ(whole.next().epoch, 1.0 / 3);
  whole.next();
  const StepDraws last = whole.next();
  EXPECT_EQ(last.samples, 2);
  EXPECT_EQ(last.after, (SamplerState{1, 0, 1}));
}

/// As transformers' Trainer does, dataloader_drop_last leaves out a batch and not a step, and
/// fractions of an epoch count batches.
TEST(Sampler, LeavesOutTheShortBatchOfAStepOfSeveral) {
  SamplerOptions options;
  options.sequences = 90;
  options.global_batch = 12;  // 3 batches of 4
  options.micro_batch = options.batch = 4;
  options.drop_last = true;
  Sampler sampler(options, {0, 0, 1});
  EXPECT_EQ(sampler.steps_per_epoch(), 8);  // 22 full batches
  EXPECT_DOUBLE_EQ(sampler.next().epoch, 3.0 / 22);
  for (int step = 2; step < 8; ++step) {
    sampler.next();
  }
  const StepDraws last = sampler.next();
  EXPECT_EQ(last.samples, 4);
  EXPECT_EQ(last.after, (SamplerState{1, 0, 1}));
  options.drop_last = false;
  EXPECT_DOUBLE_EQ(Sampler(options, {0, 0, 1}).next().epoch, 3.0 / 23);
  // A checkpoint of a run that used the rows at the end of the epoch.
  options.drop_last = true;
  EXPECT_EQ(Sampler(options, {0, 89, 1}).next().after, (SamplerState{1, 12, 1}));
}

TEST(Sampler, GivesEveryRankTheAccumulationsOfTheConfiguration) {
  SamplerOptions options;
  options.sequences = 100;
  options.global_batch = 2 * 3 * 4;  // 2 rows, 3 ranks, 4 accumulations
  options.micro_batch = 2;
  options.ranks = 3;
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    const StepDraws draws = Sampler(options, {0, 0, 1}).next();
    ASSERT_EQ(draws.micro_batches.size(), 4U);
    for (const auto& rows : draws.micro_batches) {
      EXPECT_EQ(rows.size(), 2U);
    }
  }
}

TEST(Sampler, RefusesWhatCannotBe) {
  SamplerOptions options;
  expect_parts(error_of([&] { Sampler(options, {}); }), {"no sequence"});
  options.sequences = 3;
  options.global_batch = 4;
  options.drop_last = true;
  expect_parts(
      error_of([&] { Sampler(options, {}); }, ErrorKind::kConfig), {"dataloader_drop_last=false"});
  options.drop_last = false;
  expect_parts(
      error_of([&] { Sampler(options, {0, 4, 0}); }), {"sequence 4 of epoch 0", "resume with"});
  EXPECT_THROW(Sampler(options, {-1, 0, 0}), Error);
  options.rank = 1;
  EXPECT_THROW(Sampler(options, {}), Error);
  // The end of an epoch equals the start of the next one.
  options.rank = 0;
  EXPECT_EQ(Sampler(options, {0, 3, 0}).next().micro_batches.front().front().sample, 3);
}

}  // namespace sampler_test
}  // namespace lockstep::data
