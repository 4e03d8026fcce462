// Tests of time and memory prediction.
#include "train/forecast.h"

#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/memory_account.h"
#include "temporary_folder.h"
#include "train/machine/warm_up.h"

namespace lockstep::train {
namespace forecast_test {

config::Config small_config() {
  config::Config config;
  config.training.per_device_train_batch_size = 4;
  config.data.sequence_length = 128;
  return config;
}

std::filesystem::path cluster_of(const TemporaryFolder& folder, double memory_gb) {
  const auto file = folder.path() / "cluster.yaml";
  std::ofstream(file) << "nodes:\n  - {devices: 1, device: {like: a100-80gb, memory_gb: "
                      << memory_gb << "}}\n";
  return file;
}

TEST(Forecast, OfAKnownMachineSaysTimeAndMemory) {
  const TemporaryFolder folder;
  RankContext rank_context{.store = {}, .communicator = comm::Communicator::alone()};
  rank_context.local_size = 1;
  const auto forecast = make_forecast(
      small_config(),
      model::preset("gpt2-tiny"),
      rank_context,
      {.cluster = cluster_of(folder, 80)});
  ASSERT_TRUE(forecast.has_value());
  ASSERT_TRUE(forecast->speed.has_value());
  EXPECT_GT(forecast->speed->step_seconds, 0);
  EXPECT_GT(forecast->bytes, 3e6 * 16);
  EXPECT_GT(forecast->room, forecast->bytes);
  EXPECT_NE(describe(*forecast).find("s per step"), std::string::npos);
}

TEST(Forecast, ComparesWithTheMedianAndLeavesTheFirstStepOut) {
  Forecast forecast;
  forecast.speed = Forecast::Speed{.step_seconds = 1.1, .basis = "a file"};
  forecast.bytes = 90e6;
  const std::string text = compare(forecast, typical_seconds({9, 1, 1, 1, 2}), 100e6);
  EXPECT_NE(text.find("measured 1 s (+10.0%)"), std::string::npos) << text;
  EXPECT_NE(text.find("(-10.0%)"), std::string::npos) << text;
  EXPECT_EQ(typical_seconds({}), 0);
}

TEST(Forecast, SaysNothingOfTimeWhereNobodyMeasured) {
  Forecast forecast;
  forecast.bytes = 90e6;
  forecast.room = 2e9;
  EXPECT_EQ(describe(forecast), "predicted memory: 86 MiB per rank (1.9 GiB free)");
  EXPECT_EQ(compare(forecast, 1, 100e6).find("s per step"), std::string::npos);
  EXPECT_NE(compare(forecast, 1, 100e6).find("(-10.0%)"), std::string::npos);
}

TEST(WarmUp, TakesEveryFamilyInEachType) {
  for (const char* name : {"gpt2-xl", "llama2-70b", "mistral-7b", "qwen2-0.5b", "t5-small"}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      EXPECT_NO_THROW(warm_up(model::preset(name), type, 4, 2048)) << name;
    }
  }
  EXPECT_NO_THROW(warm_up(model::preset("gpt2-tiny"), at::kHalf, 1, 1));
}

TEST(Forecast, RefusesWhatWillNotFitUnlessForced) {
  const TemporaryFolder folder;
  RankContext rank_context{.store = {}, .communicator = comm::Communicator::alone()};
  config::Config config = small_config();
  config.training.per_device_train_batch_size = 1 << 20;  // exceeds the memory of any machine
  const ForecastOptions refuse{.cluster = cluster_of(folder, 1)};
  try {
    make_forecast(config, model::preset("gpt2-xl"), rank_context, refuse);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find("--force"), std::string::npos) << error.what();
  }
  ForecastOptions run = refuse;
  run.misfit = Misfit::kRun;
  EXPECT_GT(make_forecast(config, model::preset("gpt2-xl"), rank_context, run)->bytes, 1e9);
}

TEST(Forecast, OfAStepOrTwoComparesWithWhatThereIs) {
  Forecast forecast;
  forecast.speed = Forecast::Speed{.step_seconds = 2, .basis = "a file"};
  forecast.bytes = 100e6;
  EXPECT_NE(compare(forecast, 4, 100e6).find("measured 4 s (-50.0%)"), std::string::npos);
  EXPECT_NE(compare(forecast, 4, 100e6).find("(+0.0%)"), std::string::npos);
  EXPECT_EQ(typical_seconds({8, 1}), 8);
  EXPECT_EQ(typical_seconds({8, 1, 4}), 4);
}

/// The memory kinds sum to the total and have the names used in the run's record.
TEST(Forecast, TheKindsAreTheWhole) {
  const TemporaryFolder folder;
  RankContext rank_context{.store = {}, .communicator = comm::Communicator::alone()};
  const auto forecast = make_forecast(
      small_config(),
      model::preset("gpt2-tiny"),
      rank_context,
      {.cluster = cluster_of(folder, 80)});
  double sum = 0;
  std::vector<std::string> names;
  for (const auto& [name, bytes] : forecast->kinds) {
    EXPECT_GE(bytes, 0) << name;
    sum += bytes;
    names.push_back(name);
  }
  EXPECT_NEAR(sum, forecast->bytes, 1e-6 * forecast->bytes);
  const auto recorded = parallel::memory_kind_names();
  EXPECT_EQ(
      std::set<std::string>(names.begin(), names.end()),
      std::set<std::string>(recorded.begin(), recorded.end()));
  EXPECT_LE(forecast->speed->roofline_seconds, forecast->speed->step_seconds);
}

TEST(Forecast, AClusterFileThatIsNoneIsAnErrorOnEveryRank) {
  const TemporaryFolder folder;
  RankContext rank_context{.store = {}, .communicator = comm::Communicator::alone()};
  EXPECT_THROW(
      make_forecast(
          small_config(),
          model::preset("gpt2-tiny"),
          rank_context,
          {.cluster = folder.path() / "none.yaml"}),
      Error);
}

}  // namespace forecast_test
}  // namespace lockstep::train
