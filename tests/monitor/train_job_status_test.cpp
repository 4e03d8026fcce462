// Tests of the TrainJob status that is sent to Kubeflow's operator.
#include "monitor/train_job_status.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "monitor/one_server.h"
#include "monitor/progress.h"
#include "temporary_folder.h"

namespace lockstep::monitor {
namespace train_job_status_test {

using Environment = std::map<std::string, std::string>;

Environment environment_of(const OneServer& server) {
  return {{"KUBEFLOW_TRAINER_SERVER_URL", server.address() + "/status"}};
}

nlohmann::json last_of(OneServer& server) {
  const auto requests = server.requests();
  return requests.empty() ? nlohmann::json()
                          : nlohmann::json(requests.back().json().at("trainerStatus"));
}

TEST(TrainJobStatus, IsOfAPodThatTheOperatorTold) {
  EXPECT_EQ(TrainJobStatus::of_environment({}), nullptr);
  EXPECT_EQ(TrainJobStatus::of_environment({{"KUBEFLOW_TRAINER_SERVER_URL", ""}}), nullptr);
  const OneServer server;
  for (const char* off : {"true", "TRUE", "True"}) {
    Environment environment = environment_of(server);
    environment["DISABLE_KUBEFLOW_INTEGRATION"] = off;
    EXPECT_EQ(TrainJobStatus::of_environment(environment), nullptr) << off;
  }
  Environment on = environment_of(server);
  on["DISABLE_KUBEFLOW_INTEGRATION"] = "false";
  EXPECT_NE(TrainJobStatus::of_environment(on), nullptr);
  EXPECT_EQ(train_job_variables().size(), 4U);
}

TEST(TrainJobStatus, ARunThatEndsWellIsAtAHundredPercent) {
  OneServer server;
  const auto status = TrainJobStatus::of_environment(environment_of(server));
  status->log({.values = {{"loss", 2.5}, {"tokens", int64_t{7}}}});
  status->log_progress({.step = 3, .total_steps = 4, .seconds_left = 12.7});
  status->finish();
  const nlohmann::json last = last_of(server);
  EXPECT_EQ(last.at("progressPercentage"), 100);
  EXPECT_EQ(last.at("estimatedRemainingSeconds"), 0);
  EXPECT_EQ(
      last.at("metrics"),
      nlohmann::json::parse(
          R"([{"name": "loss", "value": "2.5"}, {"name": "tokens", "value": "7"}])"));
  EXPECT_TRUE(last.at("lastUpdatedTime").get<std::string>().ends_with("Z"));
}

TEST(TrainJobStatus, ARunThatDoesNotIsNotAndTheLastStateIsSent) {
  OneServer server;
  {
    const auto status = TrainJobStatus::of_environment(environment_of(server));
    status->log_progress({.step = 1, .total_steps = 4, .seconds_left = 12.7});
    status->log_progress({.step = 4, .total_steps = 4});
  }
  const nlohmann::json last = last_of(server);
  EXPECT_EQ(last.at("progressPercentage"), 99);  // the run still has work to do after the last step
  EXPECT_FALSE(last.contains("estimatedRemainingSeconds"));
  EXPECT_LE(server.requests().size(), 2U);  // steps are not sent individually
}

TEST(TrainJobStatus, SaysNothingWhereNothingHappened) {
  OneServer server;
  {
    const auto status = TrainJobStatus::of_environment(environment_of(server));
  }
  EXPECT_TRUE(server.requests().empty());
}

TEST(TrainJobStatus, LeavesOutWhatTheOperatorDoesNotTake) {
  OneServer server;
  const auto status = TrainJobStatus::of_environment(environment_of(server));
  Record record;
  record.values.emplace_back(std::string(65, 'n'), 1.0);
  record.values.emplace_back(std::string(64, 'n'), 1.0);
  for (int i = 0; i < 300; ++i) {
    record.values.emplace_back("m" + std::to_string(i), 1.0);
  }
  status->log(record);
  record.values = {{"m0", 2.0}};  // an existing metric is updated
  status->log(record);
  status->finish();
  const nlohmann::json sent = last_of(server).at("metrics");
  EXPECT_EQ(sent.size(), 256U);
  const auto has = [&](const std::string& name, const std::string& value) {
    return std::ranges::count(sent, nlohmann::json{{"name", name}, {"value", value}});
  };
  EXPECT_EQ(has(std::string(64, 'n'), "1.0"), 1);
  EXPECT_EQ(has(std::string(65, 'n'), "1.0"), 0);
  EXPECT_EQ(has("m0", "2.0"), 1);
  EXPECT_EQ(has("m254", "1.0"), 1);
  EXPECT_EQ(has("m255", "1.0"), 0);
}

TEST(TrainJobStatus, ReadsItsTokenWithoutTheLineEnd) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "token", "abc \r\n");
  OneServer server;
  Environment environment = environment_of(server);
  environment["KUBEFLOW_TRAINER_SERVER_TOKEN"] = (folder.path() / "token").string();
  const auto status = TrainJobStatus::of_environment(environment);
  status->finish();
  ASSERT_EQ(server.requests().size(), 1U);
  EXPECT_TRUE(server.requests()[0].has("Authorization: Bearer abc\r\n"))
      << server.requests()[0].headers;
}

TEST(TrainJobStatus, TroubleIsToldOnceAndTheRunGoesOn) {
  const TemporaryFolder folder;
  OneServer server([](const OneServer::Request&) { return OneServer::Reply{403, "not your job"}; });
  Environment no_token = environment_of(server);
  no_token["KUBEFLOW_TRAINER_SERVER_TOKEN"] = (folder.path() / "none").string();
  Environment nobody;
  nobody["KUBEFLOW_TRAINER_SERVER_URL"] = nobodys_address();
  const std::vector<std::pair<Environment, const char*>> troubles{
      {environment_of(server), "403: not your job"},
      {no_token, "none"},
      {nobody, "does not answer"}};
  for (const auto& [environment, what] : troubles) {
    ::testing::internal::CaptureStderr();
    {
      const auto status = TrainJobStatus::of_environment(environment);
      status->log_progress({.step = 1, .total_steps = 4});
      status->finish();
    }
    const std::string told = ::testing::internal::GetCapturedStderr();
    const std::string warning = "the TrainJob's status cannot be updated; training continues";
    const size_t at = told.find(warning);
    ASSERT_NE(at, std::string::npos) << told;
    EXPECT_EQ(told.find(warning, at + 1), std::string::npos) << told;
    EXPECT_NE(told.find(what), std::string::npos) << told;
  }
}

}  // namespace train_job_status_test
}  // namespace lockstep::monitor
