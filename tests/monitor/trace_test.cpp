// Tests of step traces and their summaries.
#include "monitor/trace.h"

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace lockstep::monitor {
namespace trace_test {

using Kind = TraceEvent::Kind;

/// Two stages with one micro-batch: the second stage waits for the first, and the first for the
/// gradient.
std::vector<RankTrace> two_ranks() {
  RankTrace first{0, "pipeline 0", 10, 15, {}};
  first.events = {
      {Kind::kAction, "0F0", 10, 11, "", 0, 0},
      {Kind::kStageWait, "0B0", 11, 13, "", 0, 0},
      {Kind::kCommunication, "exchange", 10.5, 13, "world", 1000, 11},
      {Kind::kAction, "0B0", 13, 14, "", 0, 0},
      {Kind::kCommunication, "all_reduce", 13.5, 14.5, "data", 2000000000, 13.75},
  };
  RankTrace second{1, "pipeline 1", 10, 15, {}};
  second.events = {
      {Kind::kAction, "1F0", 11, 12, "", 0, 0}, {Kind::kAction, "1B0", 12, 13, "", 0, 0}};
  return {first, second};
}

TEST(Trace, SummaryTellsBubbleComputeAndExposedCommunication) {
  const auto summaries = summarize(two_ranks());
  EXPECT_DOUBLE_EQ(summaries[0].step, 5);
  EXPECT_DOUBLE_EQ(summaries[0].compute, 1.75);  // a quarter of 0B0 was blocked by the reduction
  EXPECT_DOUBLE_EQ(summaries[0].exposed, 0.75);  // the wait for the stage counts as bubble
  EXPECT_DOUBLE_EQ(summaries[0].stage_waits, 2);
  EXPECT_DOUBLE_EQ(summaries[0].other, 0.5);  // from the reduction to the end of the step
  EXPECT_DOUBLE_EQ(summaries[0].bubble, 0.5);
  EXPECT_DOUBLE_EQ(summaries[1].bubble, 0.5);
  EXPECT_NE(summary_table(two_ranks()).find("50.0%"), std::string::npos);
}

TEST(Trace, ChromeTraceHasAProcessARankAndALineAGroup) {
  const auto trace = nlohmann::json::parse(chrome_trace(two_ranks()));
  int actions = 0, lines = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M") {
      lines += event.at("name") == "thread_name" ? 1 : 0;
      continue;
    }
    EXPECT_GE(event.at("ts").get<double>(), 0);
    actions += event.at("cat") == "action" ? 1 : 0;
    if (event.at("name") == "all_reduce") {
      EXPECT_DOUBLE_EQ(event.at("args").at("GB/s").get<double>(), 2);
      EXPECT_EQ(event.at("pid"), 0);
    }
  }
  EXPECT_EQ(actions, 4);
  EXPECT_EQ(lines, 4);  // actions of both ranks, two groups of the first
}

TEST(Trace, CopiesThatAreWaitedForAreExposed) {
  RankTrace rank{0, "alone", 0, 4, {}};
  rank.events = {
      {Kind::kAction, "0F0", 0, 1, "", 0, 0},
      {Kind::kCopy, "read", 1, 3, "", 64, 2.5},
      {Kind::kCopy, "write", 2, 4, "", 64, 4}};
  const TraceSummary summary = summarize(std::vector{rank}).front();
  EXPECT_DOUBLE_EQ(summary.exposed, 0.5);
  EXPECT_DOUBLE_EQ(summary.other, 2.5);
  const auto trace = nlohmann::json::parse(chrome_trace(std::vector{rank}));
  std::map<std::string, int> lines;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") {
      lines[event.at("name")] = event.at("tid");
    }
  }
  EXPECT_EQ(lines.size(), 3U);
  EXPECT_NE(lines.at("read"), lines.at("write"));  // they overlap
}

TEST(Trace, TravelsAsText) {
  const RankTrace trace = two_ranks().front();
  const RankTrace back = from_text(to_text(trace));
  EXPECT_EQ(to_text(back), to_text(trace));
  EXPECT_EQ(back.events.size(), 5U);
  EXPECT_THROW(from_text("{}"), Error);
}

}  // namespace trace_test
}  // namespace lockstep::monitor
