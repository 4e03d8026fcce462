// Tests of the incremental reader of ranks.jsonl.
#include "watch/record/rank_times.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "monitor/rank_file.h"
#include "temporary_folder.h"

namespace lockstep::watch {
namespace rank_times_test {

monitor::RankShares shares(int64_t step, double first, double second) {
  return {step, 1, {first, second}, {0.1, 0.2}, {0, 0}, {0, 0.3}, {0, 0}, {10.0 * first, 1}, {}};
}

TEST(RankTimes, ReadsWhatTheFileOfRanksWritesWhileItGrows) {
  const TemporaryFolder folder;
  RankTimes times(folder.path() / monitor::kRanksName);
  times.refresh();
  EXPECT_EQ(nlohmann::json::parse(times.json())["ranks"], 0);
  monitor::RankFile file(folder.path(), 0);
  file.log(shares(2, 1.5, 2.5));
  times.refresh();
  file.log(shares(4, 3, 2));
  times.refresh();
  const auto json = nlohmann::json::parse(times.json());
  EXPECT_EQ(json["steps"], (std::vector<int>{2, 4}));
  EXPECT_EQ(json["step_s"], (std::vector<std::vector<double>>{{1.5, 3}, {2.5, 2}}));
  EXPECT_EQ(json["data_wait_s"][1][0], 0.2);
  EXPECT_EQ(json["checkpoint_s"][1][1], 0.3);
  EXPECT_EQ(json["memory_bytes"][0][1], 30);
}

TEST(RankTimes, ARankThatIsAStageOfItsOwnIsSlowerThanItWas) {
  const TemporaryFolder folder;
  RankTimes times(folder.path() / monitor::kRanksName);
  monitor::RankFile file(folder.path(), 0);
  const auto run = [&](int first, int last, double compute) {
    for (int step = first; step <= last; ++step) {
      file.log(
          {step, 1, {compute, compute}, {0, 0}, {compute - 1, 0}, {0, 0}, {0, 0}, {1, 1}, {0, 1}});
    }
    times.refresh();
    return nlohmann::json::parse(times.json())["slow"].get<std::string>();
  };
  EXPECT_EQ(run(1, 150, 2), "no rank is slower than 1.2 times the usual time");
  EXPECT_EQ(
      run(151, 220, 3),
      "rank 1 is slowed by its compute: without waiting for other ranks, a step takes 1.50 times "
      "the usual time");
}

TEST(RankTimes, LongRunsAreThinnedToMeansOfNeighbours) {
  const TemporaryFolder folder;
  RankTimes times(folder.path() / monitor::kRanksName);
  monitor::RankFile file(folder.path(), 0);
  constexpr int kSteps = 1000;
  for (int step = 1; step <= kSteps; ++step) {
    file.log(shares(step, step, 1));
    if (step % 7 == 0) {
      times.refresh();
    }
  }
  times.refresh();
  EXPECT_LE(times.lines().size(), RankTimes::kMost);
  EXPECT_GT(times.lines().size(), RankTimes::kMost / 3);
  int64_t steps = 0;
  double sum = 0, most = 0;
  for (const monitor::RankShares& line : times.lines()) {
    steps += line.steps;
    sum += line.step_s[0] * static_cast<double>(line.steps);
    most = std::max(most, line.memory_bytes[0]);
    EXPECT_EQ(line.step, steps);
  }
  EXPECT_EQ(steps, kSteps);
  EXPECT_NEAR(sum, kSteps * (kSteps + 1) / 2.0, 1e-6 * sum);
  EXPECT_EQ(most, 10.0 * kSteps);
}

TEST(RankTimes, BadLinesAreNotReadAndACutFileIsReadAnew) {
  const TemporaryFolder folder;
  const auto path = folder.path() / monitor::kRanksName;
  const std::string good =
      "{\"step\": 1, \"steps\": 1, \"step_s\": [1], \"data_wait_s\": [0], "
      "\"communication_wait_s\": [0], \"memory_bytes\": [5]}\n";
  std::ofstream(path) << "nonsense\n[]\n{\"step\": \"x\"}\n{\"step\": 1, \"step_s\": [1, \"2\"]}\n"
                      << good << "{\"step\": 2, \"st";
  RankTimes times(path);
  times.refresh();
  ASSERT_EQ(times.lines().size(), 1U);
  std::ofstream(path) << good;
  times.refresh();
  EXPECT_EQ(times.lines().size(), 1U);
  // A restart with another number of ranks discards the earlier entries.
  monitor::RankFile file(folder.path(), 1);
  file.log(shares(2, 1, 2));
  times.refresh();
  ASSERT_EQ(times.lines().size(), 1U);
  EXPECT_EQ(times.lines()[0].step, 2);
}

}  // namespace rank_times_test
}  // namespace lockstep::watch
