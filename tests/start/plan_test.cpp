// Tests of `lockstep plan`: the devices that it plans for, and errors for invalid arguments.
#include "start/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "temporary_folder.h"

namespace lockstep::start {
namespace plan_test {

using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

/// A cluster with a group of two nodes, and a node whose name ends in a digit.
struct Planned {
  TemporaryFolder folder;
  std::string cluster = (folder.path() / "cluster.yaml").string();

  Planned() {
    write_file_atomically(
        cluster,
        "nodes:\n  - {name: a100, count: 2, devices: 2, device: a100-80gb}\n"
        "  - {name: rack1, count: 1, devices: 2, device: h100-80gb}\n");
  }
  Words words(const Words& more) const {
    Words all{
        "--model",
        "gpt2-tiny",
        "--cluster",
        cluster,
        "--global-batch",
        "16",
        "data.sequence_length=64"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string plan(const Words& more) const {
    ::testing::internal::CaptureStdout();
    try {
      EXPECT_EQ(run_plan(words(more)), 0);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    return ::testing::internal::GetCapturedStdout();
  }
  std::string refused(const Words& more) const {
    ::testing::internal::CaptureStdout();
    std::string text;
    try {
      (void)run_plan(words(more));
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      text = error.what();
    }
    ::testing::internal::GetCapturedStdout();
    return text;
  }
};

TEST(PlanCommand, NodesAreTakenOutByTheirNames) {
  const Planned planned;
  const std::string all = planned.plan({});
  EXPECT_THAT(all, HasSubstr("2 × 2 a100-80gb"));
  EXPECT_THAT(all, HasSubstr("1 × 2 h100-80gb"));
  for (const char* name : {"a100", "a1000", "a1001", "node0", "node1"}) {
    const std::string text = planned.plan({"--without", name});
    EXPECT_THAT(text, HasSubstr("1 × 2 a100-80gb")) << name;
    EXPECT_THAT(text, HasSubstr("1 × 2 h100-80gb")) << name;
  }
  for (const char* name : {"rack1", "rack10", "node2"}) {
    const std::string text = planned.plan({"--without", name});
    EXPECT_THAT(text, HasSubstr("2 × 2 a100-80gb")) << name;
    EXPECT_THAT(text, Not(HasSubstr("h100-80gb"))) << name;
  }
  const std::string both = planned.plan({"--without", "a100", "--without", "a100"});
  EXPECT_THAT(both, Not(HasSubstr("a100-80gb")));
}

TEST(PlanCommand, ANodeThatIsNotThereIsToldWithThoseThatAre) {
  const Planned planned;
  for (const char* name : {"a1002", "rack", "rack11", "node3", "node", "node-1", "", "b"}) {
    const std::string text = planned.refused({"--without", name});
    EXPECT_THAT(text, HasSubstr("unknown node")) << name;
    EXPECT_THAT(text, HasSubstr("one of a100, rack1, node0 to node2")) << name;
  }
  EXPECT_THAT(
      planned.refused({"--without", "a1001", "--without", "node1"}), HasSubstr("given twice"));
  EXPECT_THAT(
      planned.refused({"--without", "a100", "--without", "a100", "--without", "rack1"}),
      HasSubstr("no device is left"));
}

TEST(PlanCommand, NodesAreAdded) {
  const Planned planned;
  EXPECT_THAT(planned.plan({"--add", "2xA100"}), HasSubstr("3 × 2 a100-80gb"));
  EXPECT_THAT(planned.plan({"--add", "4xh100-80gb"}), HasSubstr("1 × 4 h100-80gb"));
  for (const char* node :
       {"", "8", "x", "0xh100-80gb", "-1xh100-80gb", "4097xh100-80gb", "1.5xh100"}) {
    EXPECT_THAT(planned.refused({"--add", node}), HasSubstr("not a number of devices")) << node;
  }
  EXPECT_THAT(planned.refused({"--add", "8xh100-80bg"}), HasSubstr("Did you mean 'h100-80gb'?"));
}

TEST(PlanCommand, NumbersThatCanBe) {
  const Planned planned;
  for (const char* flag : {"--tokens", "--global-batch"}) {
    for (const char* value : {"0", "-5", "many"}) {
      EXPECT_THAT(planned.refused({flag, value}), HasSubstr(std::string(flag).substr(2)))
          << flag << " " << value;
    }
  }
  EXPECT_THAT(planned.plan({"--tokens", "1"}), HasSubstr("1 tokens: 1 steps, "));
}

TEST(PlanCommand, WhatItWritesHasTheNamesThatItSays) {
  const Planned planned;
  const std::string plan = (planned.folder.path() / "plan.yaml").string(),
                    drawing = (planned.folder.path() / "plan.svg").string();
  const std::string text = planned.plan({"--write", plan, "--svg", drawing});
  EXPECT_THAT(text, HasSubstr("written: " + plan));
  EXPECT_THAT(read_file(plan), HasSubstr("bf16"));
  EXPECT_THAT(read_file(plan), Not(HasSubstr("gpt2-tiny"))) << "who trains names the model";
  EXPECT_THAT(read_file(drawing), HasSubstr("<svg"));
  try {
    ::testing::internal::CaptureStdout();
    (void)run_plan(planned.words({"--write", (planned.folder.path() / "none/plan.yaml").string()}));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kEnvironment);
  }
  ::testing::internal::GetCapturedStdout();
}

}  // namespace plan_test
}  // namespace lockstep::start
