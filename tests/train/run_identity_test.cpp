// A run's data and settings compared with those of a checkpoint.
#include "train/run_identity.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep::train {
namespace run_identity_test {

using Json = nlohmann::json;

TEST(RunIdentity, TellsWhatDiffersByTheKeysNames) {
  const Json there{
      {"data", {{"sequences", 10}, {"data.packing", "none"}, {"data.sequence_length", 32}}},
      {"settings", {{"training.seed", 1}, {"training.optim", "adamw"}}}};
  EXPECT_TRUE(compare_identities(there, there).data.empty());
  EXPECT_TRUE(compare_identities(there, there).settings.empty());
  Json here = there;
  here["data"]["data.sequence_length"] = 16;
  here["settings"]["training.optim"] = "muon";
  here["settings"]["training.seed"] = nullptr;
  const IdentityDifferences found = compare_identities(there, here);
  EXPECT_EQ(found.data, (std::vector<std::string>{"data.sequence_length: 32 there, 16 here"}));
  EXPECT_EQ(
      found.settings,
      (std::vector<std::string>{
          "training.optim: \"adamw\" there, \"muon\" here", "training.seed: 1 there, null here"}));
}

/// Other versions have more or fewer names.
TEST(RunIdentity, NamesThatOneOfThemDoesNotHaveAreNotCompared) {
  const Json there{{"data", {{"gone", 1}}}, {"settings", "of another form"}};
  const Json here{{"data", {{"new", 2}}}, {"settings", {{"training.seed", 1}}}};
  EXPECT_TRUE(compare_identities(there, here).data.empty());
  EXPECT_TRUE(compare_identities(there, here).settings.empty());
  EXPECT_TRUE(compare_identities(Json::object(), here).data.empty());
}

/// data.packing used to be a boolean.
TEST(RunIdentity, WhatACheckpointOfAnEarlierTimeSaysIsUnderstood) {
  const auto differ = [](const Json& there, const char* here) {
    return !compare_identities(
                {{"data", {{"data.packing", there}}}},
                {{"data", {{"data.packing", here}}}, {"settings", Json::object()}})
                .data.empty();
  };
  EXPECT_FALSE(differ(true, "concatenate"));
  EXPECT_FALSE(differ(false, "none"));
  EXPECT_TRUE(differ(true, "none"));
  EXPECT_TRUE(differ(false, "concatenate"));
  EXPECT_TRUE(differ(true, "documents"));
}

TEST(RunIdentity, ACheckpointWithoutOneIsWarnedOfByTheFirstRank) {
  const RankContext rank_context{.store = {}, .communicator = comm::Communicator::alone()};
  const Job job;
  for (const Json& state : {Json::object(), Json{{"identity", nullptr}}, Json{{"identity", 7}}}) {
    ::testing::internal::CaptureStderr();
    check_identity(job, rank_context, state, "checkpoint-7");
    const std::string told = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(told.find("checkpoint-7 was saved without its data's identity"), std::string::npos)
        << told;
  }
}

}  // namespace run_identity_test
}  // namespace lockstep::train
