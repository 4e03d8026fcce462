// Tests of events.jsonl.
#include "monitor/events.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "monitor/monitor.h"
#include "temporary_folder.h"

namespace lockstep::monitor {
namespace events_test {

TEST(Events, AreAddedBelowThoseOfEarlierAttempts) {
  const TemporaryFolder folder;
  EventFile(folder.path()).log(1.0004, 0, "began", {{"ranks", 2}});
  std::ofstream(folder.path() / kEventsName, std::ios::app)
      << "{\"time\": 2, \"st";  // incomplete line
  EventFile again(folder.path());
  again.log(3, 7, "failed", {{"error", "a\nb\xff"}});
  again.log(4, 7, "began", nlohmann::ordered_json::object());
  EXPECT_EQ(
      read_file(folder.path() / kEventsName),
      "{\"time\":1.0,\"step\":0,\"event\":\"began\",\"ranks\":2}\n"
      "{\"time\": 2, \"st\n"
      "{\"time\":3.0,\"step\":7,\"event\":\"failed\",\"error\":\"a\\nb\xef\xbf\xbd\"}\n"
      "{\"time\":4.0,\"step\":7,\"event\":\"began\"}\n");
  EXPECT_THROW(EventFile(folder.path() / "nowhere"), Error);
}

TEST(Events, OfAMonitorHaveItsStepAndTheTimeInSteps) {
  const TemporaryFolder folder;
  Monitor monitor(
      {.output_dir = folder.path(), .logging_steps = 1, .progress = Progress::Style::kSilent},
      std::nullopt,
      {.wall = [] { return 5.0; }, .steady = [] { return 1.0; }});
  monitor.step({.step = 3, .loss = 1, .step_s = 0.5});
  monitor.event("saved", {{"checkpoint", "checkpoint-3"}});
  monitor.finish();
  EXPECT_EQ(
      read_file(folder.path() / kEventsName),
      "{\"time\":5.0,\"step\":3,\"event\":\"saved\",\"checkpoint\":\"checkpoint-3\",\"in_steps_s\":"
      "0.5}\n{\"time\":5.0,\"step\":3,\"event\":\"finished\",\"in_steps_s\":0.5}\n");
}

TEST(Events, APlaceThatIsFullCostsTheEventsAndNotTheRun) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("/dev/full", folder.path() / kEventsName);
  Monitor monitor(
      {.output_dir = folder.path(), .logging_steps = 1, .progress = Progress::Style::kSilent},
      std::nullopt);
  monitor.event("began", {{"ranks", 1}});
  monitor.event("saved", {{"checkpoint", "checkpoint-3"}});
  EXPECT_TRUE(monitor.step({.step = 1, .loss = 1, .step_s = 0.5}));
}

TEST(Events, AProgramIsToldByItsVersionAndItsBuild) {
  const auto program = program_identity();
  EXPECT_FALSE(program.at("version").get<std::string>().empty());
  EXPECT_EQ(program.at("build").get<std::string>().size(), 12U);
  EXPECT_EQ(program, program_identity());
}

}  // namespace events_test
}  // namespace lockstep::monitor
