// Step times per rank in the run's files.
#include "train/rank_times.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "comm/threads.h"
#include "temporary_folder.h"

namespace lockstep::train {
namespace rank_times_test {

using Numbers = std::array<double, RankTimes::kNumbers>;

/// Numbers of a rank: times in the order of monitor::kRankMeans, and the first kind of memory.
Numbers numbers_of(std::array<double, RankTimes::kTimes> times, double bytes = 100) {
  Numbers numbers{};
  std::ranges::copy(times, numbers.begin());
  numbers[RankTimes::kTimes] = bytes;
  return numbers;
}

/// A run folder and the rank reports in it.
struct Told {
  TemporaryFolder folder;
  monitor::Monitor monitor{
      {.output_dir = folder.path(), .progress = monitor::Progress::Style::kSilent}, std::nullopt};

  std::vector<nlohmann::json> lines(const char* file) const {
    std::vector<nlohmann::json> found;
    std::string text;
    if (std::filesystem::exists(folder.path() / file)) {
      text = read_file(folder.path() / file);
    }
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      found.push_back(nlohmann::json::parse(text.substr(at, text.find('\n', at) - at)));
    }
    return found;
  }
  std::vector<nlohmann::json> ranks() const { return lines("ranks.jsonl"); }
  std::vector<nlohmann::json> events(const std::string& name) const {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& event : lines("events.jsonl")) {
      if (event.at("event") == name) {
        found.push_back(event);
      }
    }
    return found;
  }
};

/// Rank 0 of a run; the test provides the numbers of the other ranks.
struct FirstRank {
  comm::Communicator world = comm::Communicator::alone();
  parallel::ParallelGroups axes{world, {}};
  RankTimes times{axes};

  void take(int64_t step, const std::vector<Numbers>& ranks) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      times.take(static_cast<int>(rank), static_cast<int>(ranks.size()), step, ranks[rank]);
    }
  }
};

TEST(TrainerRankTimes, AreMeansSinceTheLastLine) {
  Told told;
  FirstRank first;
  first.take(0, {Numbers{}, Numbers{}});  // no step has been completed yet
  first.times.tell(told.monitor);
  EXPECT_TRUE(told.ranks().empty());
  first.take(1, {numbers_of({1, 0.1, 0.2, 0, 0.5}, 10), numbers_of({2, 0, 0, 0, 0}, 40)});
  first.take(2, {numbers_of({3, 0.3, 0.4, 1, 0.5}, 30), numbers_of({4, 0, 0, 0, 0}, 20)});
  first.times.tell(told.monitor);
  ASSERT_EQ(told.ranks().size(), 1U);
  const nlohmann::json line = told.ranks()[0];
  EXPECT_EQ(line.at("step"), 2);
  EXPECT_EQ(line.at("steps"), 2);
  EXPECT_EQ(line.at("step_s"), (std::vector<double>{2, 3}));
  EXPECT_EQ(line.at("data_wait_s"), (std::vector<double>{0.2, 0}));
  EXPECT_NEAR(line.at("communication_wait_s")[0].get<double>(), 0.3, 1e-12);
  EXPECT_EQ(line.at("checkpoint_s"), (std::vector<double>{0.5, 0}));
  EXPECT_EQ(line.at("moving_s"), (std::vector<double>{0.5, 0}));
  EXPECT_EQ(line.at("memory_bytes"), (std::vector<double>{30, 40}));  // the maximum, not the mean
  first.times.tell(told.monitor);
  EXPECT_EQ(told.ranks().size(), 1U) << "nothing is told twice";
  first.take(3, {numbers_of({5, 0, 0, 0, 0}, 1), numbers_of({6, 0, 0, 0, 0}, 1)});
  first.times.tell(told.monitor);
  EXPECT_EQ(told.ranks().at(1).at("steps"), 1);
  EXPECT_EQ(told.ranks().at(1).at("step_s"), (std::vector<double>{5, 6}));
  EXPECT_EQ(told.ranks().at(1).at("memory_bytes"), (std::vector<double>{1, 1}));
}

/// Lines for a thousand ranks in every step would dominate the run's record.
TEST(TrainerRankTimes, OfManyRanksSomeStepsAreToldTogether) {
  Told told;
  FirstRank first;
  for (int64_t step = 1; step <= 5; ++step) {
    first.take(step, std::vector<Numbers>(33, numbers_of({1, 0, 0, 0, 0})));
    first.times.tell(told.monitor);
    EXPECT_EQ(told.ranks().size(), step < 3 ? 0U : 1U) << step;
  }
  EXPECT_EQ(told.ranks()[0].at("steps"), 3);
}

TEST(TrainerRankTimes, AnEventSaysWhenAnotherRankIsTheSlowOne) {
  Told told;
  FirstRank first;
  int64_t step = 0;
  const auto run = [&](double second, int steps) {
    for (int i = 0; i < steps; ++i) {
      first.take(
          ++step,
          {numbers_of({1, 0, 0, 0, 0}),
           numbers_of({second, 0, 0, 0, 0}),
           numbers_of({1, 0, 0, 0, 0})});
      first.times.tell(told.monitor);
    }
  };
  run(2, 49);
  EXPECT_TRUE(told.events("slow rank").empty()) << "too few steps to say so";
  run(2, 1);
  ASSERT_EQ(told.events("slow rank").size(), 1U);
  const nlohmann::json slow = told.events("slow rank")[0];
  EXPECT_EQ(slow.at("rank"), 1);
  EXPECT_NEAR(slow.at("factor").get<double>(), 2, 1e-9);
  EXPECT_EQ(slow.at("by"), "compute");
  run(2, 50);
  EXPECT_EQ(told.events("slow rank").size(), 1U) << "it was told of";
  run(1, 50);
  ASSERT_EQ(told.events("slow rank").size(), 2U);
  EXPECT_TRUE(told.events("slow rank")[1].at("rank").is_null());
  run(1, 50);
  EXPECT_EQ(told.events("slow rank").size(), 2U);
}

TEST(TrainerRankTimes, TheFullestRanksMemoryIsToldAgainWhenItGrew) {
  Told told;
  FirstRank first;
  int64_t step = 0;
  const auto run = [&](double own, double other) {
    first.take(++step, {numbers_of({1, 0, 0, 0, 0}, own), numbers_of({1, 0, 0, 0, 0}, other)});
    first.times.tell(told.monitor);
    return told.events("memory");
  };
  ASSERT_EQ(run(1000, 2000).size(), 1U);
  EXPECT_EQ(run(1000, 2000)[0].at("rank"), 1);
  EXPECT_EQ(run(1000, 2000)[0].at("bytes"), 2000);
  EXPECT_EQ(run(1000, 2000)[0].at("kinds").at("parameters"), 2000);
  EXPECT_EQ(run(1000, 2030).size(), 1U) << "by so little it is no news";
  EXPECT_EQ(run(1000, 500).size(), 1U);
  const auto grown = run(2100, 500);
  ASSERT_EQ(grown.size(), 2U);
  EXPECT_EQ(grown[1].at("rank"), 0);
  EXPECT_EQ(grown[1].at("bytes"), 2100);
}

TEST(TrainerRankTimes, TheLastStepIsGatheredAtTheEnd) {
  Told told;
  comm::run_ranks(2, [&](comm::Communicator& world) {
    parallel::ParallelGroups axes(world, {.pipeline = 2});
    RankTimes times(axes);
    const bool is_first = world.rank() == 0;
    parallel::MemoryByKind memory;
    memory.optimizer = 70;
    times.end_step(1.5 + world.rank(), 0.5, 0.25, 0.125, memory);
    times.end_save(2);
    times.end_save(1);
    EXPECT_EQ(times.numbers()[3], 3);
    times.end_run(world, 9, is_first ? &told.monitor : nullptr);
  });
  ASSERT_EQ(told.ranks().size(), 1U);
  const nlohmann::json line = told.ranks()[0];
  EXPECT_EQ(line.at("step"), 9);
  EXPECT_EQ(line.at("step_s"), (std::vector<double>{1.5, 2.5}));
  EXPECT_EQ(line.at("checkpoint_s"), (std::vector<double>{3, 3}));
  EXPECT_EQ(line.at("moving_s"), (std::vector<double>{0.125, 0.125}));
  EXPECT_EQ(line.at("memory_bytes"), (std::vector<double>{70, 70}));
  EXPECT_EQ(line.at("stages"), (std::vector<int>{0, 1}));
}

/// A run that resumes from its last checkpoint has no step to report.
TEST(TrainerRankTimes, ARunWithoutAStepTellsNothing) {
  Told told;
  FirstRank first;
  first.times.end_run(first.world, 0, &told.monitor);
  EXPECT_TRUE(told.ranks().empty());
  EXPECT_TRUE(told.events("memory").empty());
}

}  // namespace rank_times_test
}  // namespace lockstep::train
