// Tests of dataset mixtures.
#include "data/mixture.h"

#include <cmath>
#include <numeric>
#include <set>

#include "base/counter_random.h"
#include "data/sampler.h"
#include "data_testing.h"

namespace lockstep::data {
namespace mixture_test {

TEST(MixtureOrder, IsWithinOneSampleOfEveryShareAfterAnyNumberOfSamples) {
  uint64_t key = 7;
  const auto random = [&key](uint64_t below) {
    key = derive_key(key, 1);
    return static_cast<int64_t>(key % below);
  };
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<MixtureSource> sources(static_cast<size_t>(1 + random(12)));
    double sum = 0;
    for (MixtureSource& source : sources) {
      source = {1 + random(50), static_cast<double>(1 + random(trial % 2 == 0 ? 4 : 1000)), {}};
      sum += source.weight;
    }
    MixtureOrder order(sources);
    for (int64_t n = 1; n <= 400; ++n) {
      const MixtureOrder::Sample sample = order.next();
      ASSERT_EQ(sample.index, order.taken()[sample.source] - 1);
      for (size_t i = 0; i < sources.size(); ++i) {
        const double share = static_cast<double>(n) * sources[i].weight / sum;
        ASSERT_LT(std::abs(static_cast<double>(order.taken()[i]) - share), 1 + 1e-6)
            << "source " << i << " after " << n;
      }
    }
  }
}

TEST(MixtureOrder, TakesTheFirstOfEquals) {
  MixtureOrder order({{5, 1, {}}, {5, 1, {}}, {5, 2, {}}});
  std::vector<size_t> drawn;
  for (int i = 0; i < 8; ++i) {
    drawn.push_back(order.next().source);
  }
  EXPECT_EQ(drawn, (std::vector<size_t>{2, 0, 1, 2, 2, 0, 1, 2}));
}

TEST(MixtureOrder, SharesWhatASourceThatIsUsedUpLeaves) {
  MixtureOrder order({{3, 0.5, 2}, {10, 0.25, {}}, {10, 0.25, {}}});
  EXPECT_EQ(order.capacity(), std::nullopt);
  for (int i = 0; i < 400; ++i) {
    order.next();
  }
  EXPECT_EQ(order.taken()[0], 6);  // two passes over three sequences
  EXPECT_NEAR(static_cast<double>(order.taken()[1] - order.taken()[2]), 0, 2);
  EXPECT_EQ(std::accumulate(order.taken().begin(), order.taken().end(), int64_t{0}), 400);
}

TEST(MixtureOrder, EndsWhereAllAreUsedUp) {
  MixtureOrder order({{3, 1, 1}, {4, 9, 2}});
  EXPECT_EQ(order.capacity(), 11);
  order.advance_to(11);
  EXPECT_EQ(order.taken(), (std::vector<int64_t>{3, 8}));
  EXPECT_NE(error_of([&] { order.next(); }, ErrorKind::kData).find("after 11"), std::string::npos);
}

/// The order that next() draws sample by sample is the reference.
TEST(MixtureOrder, SkipsToTheStateThatDrawingEachSampleGives) {
  uint64_t key = 11;
  const auto random = [&key](uint64_t below) {
    key = derive_key(key, 1);
    return static_cast<int64_t>(key % below);
  };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<MixtureSource> sources(static_cast<size_t>(1 + random(9)));
    for (MixtureSource& source : sources) {
      const int64_t largest = trial % 3 == 0 ? 3 : trial % 3 == 1 ? 40 : 100000;
      source = {
          1 + random(50), static_cast<double>(1 + random(static_cast<uint64_t>(largest))), {}};
      if (trial % 2 == 0 && random(2) == 0) {
        source.max_epochs = 1 + random(20);
      }
    }
    MixtureOrder each(sources);
    const int64_t most = std::min<int64_t>(each.capacity().value_or(3000), 3000);
    MixtureOrder in_parts(sources);
    for (int64_t n = 0; n <= most; n += 1 + random(400)) {
      while (each.drawn() < n) {
        each.next();
      }
      MixtureOrder at_once(sources);
      at_once.advance_to(n);
      in_parts.advance_to(n);
      ASSERT_EQ(at_once.taken(), each.taken()) << "after " << n;
      ASSERT_EQ(in_parts.taken(), each.taken()) << "after " << n;
      MixtureOrder going_on = each;
      for (int i = 0; i < 30 && going_on.drawn() < most; ++i) {
        const MixtureOrder::Sample expected = going_on.next(), got = at_once.next();
        ASSERT_EQ(got.source, expected.source);
        ASSERT_EQ(got.index, expected.index);
      }
    }
  }
}

TEST(MixtureOrder, SkipsAnyNumberOfSamples) {
  MixtureOrder order({{5, 0.7, {}}, {3, 0.29, {}}, {1, 0.01, 1'000'000'000}});
  const int64_t far = int64_t{1} << 50;  // drawing each would take weeks
  order.advance_to(far);
  EXPECT_EQ(order.drawn(), far);
  EXPECT_EQ(std::accumulate(order.taken().begin(), order.taken().end(), int64_t{0}), far);
  EXPECT_EQ(order.taken()[2], 1'000'000'000);
  const MixtureOrder::Sample sample = order.next();
  EXPECT_EQ(sample.index, order.taken()[sample.source] - 1);
}

TEST(MixtureOrder, RefusesWhatCannotBeDrawnFrom) {
  EXPECT_THROW(MixtureOrder({}), Error);
  EXPECT_THROW(MixtureOrder({{0, 1, {}}}), Error);
  EXPECT_THROW(MixtureOrder({{1, 0, {}}}), Error);
  EXPECT_THROW(MixtureOrder({{1, std::nan(""), {}}}), Error);
  EXPECT_THROW(MixtureOrder({{1, 1, 0}}), Error);
}

/// Returns the sequences of `steps` steps in sample order.
std::vector<int64_t> draw(SamplerOptions options, SamplerState& state, int64_t steps) {
  std::vector<Sampler> ranks;
  for (options.rank = 0; options.rank < options.ranks; ++options.rank) {
    ranks.emplace_back(options, state);
  }
  std::vector<int64_t> sequences;
  for (int64_t step = 0; step < steps; ++step) {
    for (Sampler& sampler : ranks) {
      const StepDraws draws = sampler.next();
      for (const auto& rows : draws.micro_batches) {
        for (const Draw& row : rows) {
          sequences.push_back(row.sequence);
        }
      }
      state = draws.after;
    }
  }
  return sequences;
}

SamplerOptions mixed(bool drop_last) {
  SamplerOptions options;
  options.sources = {{7, 0.6, {}}, {13, 0.3, {}}, {1, 0.1, {}}};
  options.sequences = 21;
  options.global_batch = 5;
  options.micro_batch = 2;
  options.drop_last = drop_last;
  return options;
}

TEST(Sampler, DrawsAMixtureAlikeOnAnyRanksAndAfterAResume) {
  for (const bool drop_last : {false, true}) {
    SamplerOptions options = mixed(drop_last);
    SamplerState state{0, 0, 11};
    const std::vector<int64_t> whole = draw(options, state, 23);
    options.ranks = 3;
    SamplerState other{0, 0, 11};
    std::vector<int64_t> parts = draw(options, other, 9);
    options.ranks = 2;
    const std::vector<int64_t> rest = draw(options, other, 14);
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, whole);
    EXPECT_EQ(other, state);
  }
}

TEST(Sampler, ReadsEachSourceOfAMixturePassByPass) {
  SamplerState state{0, 0, 11};
  const std::vector<int64_t> drawn = draw(mixed(false), state, 23);
  std::vector<int64_t> first;
  for (const int64_t sequence : drawn) {
    if (sequence < 7) {
      first.push_back(sequence);
    }
  }
  ASSERT_GE(first.size(), 28U);
  for (size_t pass = 0; pass < 4; ++pass) {
    const auto begin = first.begin() + static_cast<std::ptrdiff_t>(7 * pass);
    EXPECT_EQ(std::set<int64_t>(begin, begin + 7).size(), 7U) << "pass " << pass;
  }
  EXPECT_NE(
      std::vector<int64_t>(first.begin(), first.begin() + 7),
      std::vector<int64_t>(first.begin() + 7, first.begin() + 14));
}

}  // namespace mixture_test
}  // namespace lockstep::data
