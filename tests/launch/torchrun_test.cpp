// Tests of torchrun's command line.
#include "launch/frontends/torchrun.h"

#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "launch/helpers.h"
#include "launch/plan/plan_parts.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace torchrun_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string problem_of(
    const std::vector<std::string>& arguments, const Environment& environment = {}) {
  try {
    plan_torchrun(arguments, environment);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Torchrun, ReadsBothSpellingsPrefixesAndValues) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"--nproc-per-node", "3", "--max-restarts=2", "x.py", "--nnodes", "9"},
           {"--nproc_per_node=3", "--max_restarts", "2", "x.py", "--nnodes", "9"},
           {"--nproc", "3", "--max-r", "2", "x.py", "--nnodes", "9"}}) {
    const LaunchPlan plan = plan_torchrun(arguments, {{"PYTHON_EXEC", "/usr/bin/py"}});
    EXPECT_EQ(plan.workers, 3);
    EXPECT_EQ(plan.restarts.most, 2);
    EXPECT_EQ(plan.restarts.window.count(), 0);
    EXPECT_EQ(plan.max_nodes, 1);
    EXPECT_THAT(plan.argv, ElementsAre("/usr/bin/py", "-u", "x.py", "--nnodes", "9"));
  }
}

TEST(Torchrun, TakesDefaultsFromPetVariables) {
  const Environment environment{
      {"PET_NPROC_PER_NODE", "4"},
      {"PET_MAX_RESTARTS", "7"},
      {"PET_MODULE", "1"},
      {"PYTHON_EXEC", "py"}};
  const LaunchPlan plan = plan_torchrun({"--max-restarts", "1", "pkg.main"}, environment);
  EXPECT_EQ(plan.workers, 4);
  EXPECT_EQ(plan.restarts.most, 1);
  EXPECT_THAT(plan.argv, ElementsAre("py", "-u", "-m", "pkg.main"));
}

TEST(Torchrun, TakesItsPlaceFromAnIndexedJob) {
  const std::vector<std::string> words{
      "--nnodes", "4", "--master-addr", "set-node-0-0.set", "--rdzv-insecure", "x"};
  EXPECT_EQ(plan_torchrun(words, {{"JOB_COMPLETION_INDEX", "3"}}).rendezvous.node_rank, 3);
  // An explicit rank of the user or of Kubeflow takes precedence.
  EXPECT_EQ(
      plan_torchrun(words, {{"JOB_COMPLETION_INDEX", "3"}, {"PET_NODE_RANK", "1"}})
          .rendezvous.node_rank,
      1);
  EXPECT_EQ(plan_torchrun({"x"}, {{"JOB_COMPLETION_INDEX", "3"}}).rendezvous.node_rank, 0);
  EXPECT_THAT(
      problem_of(words, {{"JOB_COMPLETION_INDEX", "4"}}), HasSubstr("out of range for 4 nodes"));
  EXPECT_THAT(problem_of(words, {{"JOB_COMPLETION_INDEX", "x"}}), HasSubstr("not a pod index"));
}

TEST(Torchrun, SaysThatKubeflowCountsCpus) {
  const auto notes = [](const std::string& workers, const Environment& more) {
    Environment environment{
        {"PET_NPROC_PER_NODE", workers}, {"CUDA_VISIBLE_DEVICES", ""}, {"PYTHON_EXEC", "py"}};
    environment.insert(more.begin(), more.end());
    return plan_torchrun({"x"}, environment).notes;
  };
  const Environment pod{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  EXPECT_THAT(notes("32", pod), ElementsAre(HasSubstr("starting 32 ranks with few threads")));
  EXPECT_THAT(notes("1", pod), ElementsAre());
  EXPECT_THAT(notes("32", {}), ElementsAre());
}

TEST(Torchrun, ChoosesHowNodesMeet) {
  EXPECT_EQ(plan_torchrun({"x"}, {}).rendezvous.kind, RendezvousPoint::Kind::kLocal);
  EXPECT_EQ(
      plan_torchrun({"--standalone", "--nnodes", "4", "x"}, {}).rendezvous.kind,
      RendezvousPoint::Kind::kLocal);
  const LaunchPlan fixed = plan_torchrun(
      {"--nnodes=2", "--node-rank=1", "--master-addr=n0", "--master-port=1234", "x"}, {});
  EXPECT_EQ(fixed.rendezvous.kind, RendezvousPoint::Kind::kStatic);
  EXPECT_EQ(fixed.rendezvous.host, "n0");
  EXPECT_EQ(fixed.rendezvous.port, 1234);
  const LaunchPlan dynamic = plan_torchrun(
      {"--nnodes=2:5",
       "--rdzv-backend=c10d",
       "--rdzv-endpoint=[fe80::1]:77",
       "--rdzv-conf=join_timeout=9,is_host=1",
       "x"},
      {});
  EXPECT_EQ(dynamic.rendezvous.kind, RendezvousPoint::Kind::kDynamic);
  EXPECT_EQ(dynamic.rendezvous.host, "fe80::1");
  EXPECT_EQ(dynamic.rendezvous.port, 77);
  EXPECT_EQ(dynamic.rendezvous.join_timeout, std::chrono::seconds(9));
  EXPECT_EQ(dynamic.rendezvous.is_host, true);
  EXPECT_EQ(dynamic.min_nodes, 2);
  EXPECT_EQ(dynamic.max_nodes, 5);
  EXPECT_EQ(
      plan_torchrun({"--nnodes=2", "--master-addr=[fe80::1]", "--master-port=7", "x"}, {})
          .rendezvous.host,
      "fe80::1");
}

TEST(Torchrun, HasTheIdThatWasAskedForOnOneNode) {
  EXPECT_EQ(plan_torchrun({"--rdzv-id", "job7", "x"}, {}).run_id, "job7");
  EXPECT_EQ(plan_torchrun({"x"}, {{"PET_RDZV_ID", "job8"}}).run_id, "job8");
  EXPECT_NE(plan_torchrun({"--rdzv-id", "job7", "--standalone", "x"}, {}).run_id, "job7");
  EXPECT_NE(plan_torchrun({"x"}, {}).run_id, plan_torchrun({"x"}, {}).run_id);
}

TEST(Torchrun, OneNodeDoesNotMeetAtAPortThatNobodyNamed) {
  for (const char* word : {"--master-port=0", "--rdzv-endpoint=localhost:0"}) {
    EXPECT_EQ(plan_torchrun({word, "x"}, {}).rendezvous.kind, RendezvousPoint::Kind::kLocal);
  }
  EXPECT_THAT(
      problem_of({"--nnodes=2", "--master-port=0", "x"}),
      HasSubstr("a port that all of them know"));
}

TEST(Torchrun, ReadsTheRendezvousConfAsTorchrunDoes) {
  const auto conf = [](const std::string& text) {
    return plan_torchrun(
               {"--rdzv-backend=c10d", "--rdzv-endpoint=n0:77", "--rdzv-conf=" + text, "x"}, {})
        .rendezvous;
  };
  EXPECT_EQ(conf("join_timeout = 5, last_call_timeout=1").join_timeout, std::chrono::seconds(5));
  for (const char* word : {"TRUE", "t", "Yes", "1"}) {
    EXPECT_EQ(conf(std::string("is_host=") + word).is_host, true) << word;
  }
  EXPECT_EQ(conf("is_host=F").is_host, false);
  EXPECT_THAT(
      problem_of(
          {"--rdzv-backend=c10d", "--rdzv-endpoint=n0:77", "--rdzv-conf=is_host=maybe", "x"}),
      HasSubstr("neither true nor false"));
}

TEST(Torchrun, TellsAllProblemsAtOnce) {
  const std::string text = problem_of(
      {"--nnodes",
       "3:2",
       "--nproc-per-nod",
       "0",
       "--max-restarts",
       "-1",
       "--restart-window=-3600",
       "--nproc-per-noed=3",
       "--start-method=thread",
       "--rdzv-conf",
       "join_timeut=3",
       "-m",
       "--no-python",
       "x"});
  for (const char* part :
       {"--nnodes 3:2",
        "--nproc-per-node 0",
        "--max-restarts -1",
        "--restart-window -3600",
        "unknown option --nproc-per-noed. Did you mean 'nproc-per-node'?",
        "--start-method thread",
        "Did you mean 'join_timeout'?",
        "mutually exclusive"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(problem_of({"--r", "x"}), HasSubstr("ambiguous"));
  EXPECT_THAT(problem_of({"--tee", "4", "x"}), HasSubstr("invalid selection of streams"));
  EXPECT_THAT(
      problem_of({"--rdzv-backend=etcd", "x"}), HasSubstr("c10d needs no external service"));
  EXPECT_THAT(
      problem_of({"--rdzv-backend=c10d", "--rdzv-endpoint=a b", "x"}),
      HasSubstr("not an endpoint"));
  EXPECT_THAT(problem_of({"--nproc-per-node"}), HasSubstr("requires a value"));
}

TEST(StdSpec, NamesRanksOfAnyNumberOfDigits) {
  const StdSpec spec = StdSpec::parse("0:1,12:3,100:2", "tee");
  EXPECT_TRUE(spec.of(0).output);
  EXPECT_FALSE(spec.of(0).error_output);
  EXPECT_TRUE(spec.of(12).output && spec.of(12).error_output);
  EXPECT_FALSE(spec.of(1).output);
  for (const char* bad : {"", "4", "1:", ":3", "a:1", "1:1,", "-1:1", "1:11", "1:1,2"}) {
    EXPECT_THROW(StdSpec::parse(bad, "tee"), Error) << bad;
  }
}

TEST(Torchrun, ReadsASecretThatOnlyItsOwnerMayRead) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "secret";
  write_file_atomically(path, "0123456789abcdef\n");
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  EXPECT_EQ(read_secret(path.string()), "0123456789abcdef");
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  EXPECT_THROW(read_secret(path.string()), Error);
  EXPECT_THROW(read_secret((folder.path() / "none").string()), Error);
}

}  // namespace torchrun_test
}  // namespace lockstep::launch
