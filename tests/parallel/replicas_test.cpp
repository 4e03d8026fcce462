// Tests that a flipped bit in replicated values is detected, and attributed to its rank.
#include "parallel/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/training.h"

namespace lockstep::parallel {
namespace replicas_test {

using namespace testing;
using ::testing::Each;
using ::testing::HasSubstr;

/// Flips one bit of the last value of `flat` on `rank`. Returns the error of each rank, or "" if it
/// found none.
std::vector<std::string> found_after_a_flip(const Plan& plan, int ranks, int rank, size_t flat) {
  std::vector<std::string> found(static_cast<size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.data = ranks});
    const model::ModelConfig config = tied_config();
    const auto model =
        parallelize({.config = config, .fill = fill_at_random(config, 3)}, plan, axes);
    model->compare_replicas();
    FlatUnit& unit = model->data_parallel().flats().at(flat);
    if (world.rank() == rank) {
      auto* bytes = static_cast<uint8_t*>(unit.shard.mutable_data_ptr());
      bytes[unit.shard.nbytes() - 1] ^= 1;
    }
    try {
      model->compare_replicas();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kEnvironment);
      found[static_cast<size_t>(world.rank())] = error.message();
    }
  });
  return found;
}

TEST(Replicas, TheOddOneIsNamed) {
  for (const int rank : {0, 2}) {
    const auto expected = HasSubstr(fmt::format("differ on rank {}:", rank));
    EXPECT_THAT(found_after_a_flip({}, 3, rank, 0), Each(expected));
  }
}

TEST(Replicas, OfTwoBothAre) {
  const auto expected = HasSubstr("differ on ranks 0 or 1:");
  EXPECT_THAT(found_after_a_flip({}, 2, 1, 0), Each(expected));
}

/// Four ranks in shard groups of two: ranks 0 and 2 have the same shards.
TEST(Replicas, OfShardsInHybridSharding) {
  for (const int stage : {1, 2, 3}) {
    Plan plan;
    plan.zero_stage = stage;
    plan.shard_ranks = 2;
    const std::vector<std::string> found = found_after_a_flip(plan, 4, 2, 0);
    EXPECT_THAT(found[0], HasSubstr("ranks 0 or 2:"));
    EXPECT_THAT(found[2], HasSubstr("ranks 0 or 2:"));
    EXPECT_EQ(found[1] + found[3], "");
  }
}

TEST(Replicas, ShardsWithoutReplicasAreNotCompared) {
  EXPECT_THAT(found_after_a_flip({.zero_stage = 3}, 2, 1, 0), Each(""));
}

}  // namespace replicas_test
}  // namespace lockstep::parallel
