// Tests of deepspeed's command line, hostfiles and remote transports.
#include "launch/frontends/deepspeed.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "launch/frontends/transports.h"
#include "launch/helpers.h"
#include "launch/machines.h"
#include "launch/plan/shell_words.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace deepspeed_test {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::Ran;

std::string shown(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) {
    text += fmt::format("{}:{} ", host.host, fmt::join(host.slots, ","));
  }
  return text;
}

template <class Body>
std::string problem_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(Hostfile, IsReadStrictly) {
  EXPECT_EQ(
      shown(parse_hostfile("# all\n\n n1 slots=2 max_slots=4\r\nn2\tslots=1\n", "f")),
      "n1:0,1 n2:0 ");
  const auto problem = [](const char* text) {
    return problem_of([&] { parse_hostfile(text, "hosts"); });
  };
  EXPECT_THAT(problem("n1 slots=2\nn1 slots=3\n"), HasSubstr("hosts:2: host n1 is listed twice"));
  for (const char* bad :
       {"n1",
        "n\xf5 slots=1",
        "n1 slot=2",
        "n1 slots=",
        "n1 slots=-1",
        "n1 slots=99999999999",
        "n1 slots=x",
        "slots=2",
        "-oProxyCommand=x slots=1"}) {
    EXPECT_THAT(problem(bad), HasSubstr("hosts:1: ")) << bad;
  }
  EXPECT_THAT(problem("\n# none\n"), HasSubstr("no hosts"));
}

TEST(Hostfile, FiltersInTheHostfilesOrder) {
  const auto hosts = parse_hostfile("n1 slots=3\nn2 slots=2\nn3 slots=1\n", "f");
  EXPECT_EQ(shown(filter_hosts(hosts, "n2:1@n1", "")), "n1:0,1,2 n2:1 ");
  EXPECT_EQ(shown(filter_hosts(hosts, "n1:2@n1:0,2", "")), "n1:0,2 ");
  EXPECT_EQ(shown(filter_hosts(hosts, "", "n1:1@n3")), "n1:0,2 n2:0,1 ");
  EXPECT_EQ(shown(filter_hosts(hosts, "", "")), "n1:0,1,2 n2:0,1 n3:0 ");
  const auto problem = [&](const char* include, const char* exclude) {
    return problem_of([&] { filter_hosts(hosts, include, exclude); });
  };
  EXPECT_THAT(problem("n4", ""), HasSubstr("host 'n4' is not in the hostfile"));
  EXPECT_THAT(problem("n1:3", ""), HasSubstr("host n1 has no slot 3"));
  EXPECT_THAT(problem("n1:a", ""), HasSubstr("is not a slot"));
  EXPECT_THAT(problem("n1:", ""), HasSubstr("has no slot after"));
  EXPECT_THAT(problem("@n1", ""), HasSubstr("without a name"));
  EXPECT_THAT(problem("", "n1@n2@n3"), HasSubstr("exclude every slot"));
  EXPECT_THAT(problem("n1", "n2"), HasSubstr("mutually exclusive"));
}

TEST(Hostfile, WorldInfoIsUrlSafeBase64OfJson) {
  EXPECT_EQ(
      encode_world({{"worker-0", {0, 1}}, {"b", {3}}}), "eyJ3b3JrZXItMCI6WzAsMV0sImIiOlszXX0=");
  EXPECT_EQ(shown(decode_world("eyJ3b3JrZXItMCI6IFswLCAxXX0=")), "worker-0:0,1 ");
  for (const char* bad : {"", "e30=", "!!!!", "W10=", "eyJhIjpbXX0="}) {
    EXPECT_THROW(decode_world(bad), Error) << bad;
  }
}

TEST(Hostfile, ExpandsSlurmsLists) {
  EXPECT_THAT(expand_hosts("n[08-10,3],m2"), ElementsAre("n08", "n09", "n10", "n3", "m2"));
  EXPECT_THAT(expand_hosts("single"), ElementsAre("single"));
  for (const char* bad : {"n[1-", "n[3-1]", "n[a]", "n[0-9999999]", "n[1]x"}) {
    EXPECT_THROW(expand_hosts(bad), Error) << bad;
  }
}

TEST(ShellWords, QuoteAndSplitAreInverse) {
  const std::vector<std::string> words{"plain", "a b", "it's", "", "$(rm -rf /)", "a\"b\\c", "\n"};
  std::string text;
  for (const std::string& word : words) {
    text += shell_quote(word) + " ";
  }
  EXPECT_EQ(shell_split(text), words);
  std::string joined = "printf '%s|' " + text;
  EXPECT_EQ(testing::run({"sh", "-c", joined}).output, "plain|a b|it's||$(rm -rf /)|a\"b\\c|\n|");
  EXPECT_THROW(shell_split("a 'b"), Error);
}

TEST(ShellWords, ReadFilesOfVariables) {
  EXPECT_THAT(
      parse_environment_file("# x\nA=1=2\n\nB=a b\r\n", "f"),
      ElementsAre(Pair("A", "1=2"), Pair("B", "a b")));
  EXPECT_THAT(
      problem_of([] { parse_environment_file("A=1\nnonsense\n", "f"); }), HasSubstr("f:2:"));
}

TEST(Deepspeed, GivesWorkersItsVariablesAndALocalRankArgument) {
  const TemporaryFolder folder;
  const Ran right = testing::run(testing::part(
      "launch",
      {"--num_gpus=2",
       "--no_python",
       "--no_local_rank",
       "--enable_each_rank_log",
       folder.path().string(),
       "sh",
       "-c",
       "echo $RANK $LOCAL_RANK $CROSS_RANK $CROSS_SIZE $LOCAL_SIZE $WORLD_SIZE; [ $RANK = 0 ] || "
       "exit 9"}));
  EXPECT_EQ(right.status.shell_code(), 9) << right.error_output;
  std::string logs;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    logs += read_file(entry.path());
    count += entry.path().filename().string().find("_rank") == 14 ? 1 : 0;
  }
  EXPECT_EQ(count, 2);
  EXPECT_THAT(logs, HasSubstr("1 1 0 1 2 2\n"));
}

TEST(Deepspeed, PutsTheLocalRankFirst) {
  const LaunchPlan plan =
      plan_deepspeed({"--num_gpus", "2", "train.py", "--deepspeed"}, {{"PYTHON_EXEC", "py"}}).plan;
  EXPECT_EQ(plan.workers, 2);
  EXPECT_EQ(plan.local_rank_argument, "--local_rank={}");
  EXPECT_THAT(plan.argv, ElementsAre("py", "-u", "train.py", "--deepspeed"));
  EXPECT_EQ(plan.argument_at, 3U);
}

TEST(Deepspeed, TellsAllProblems) {
  EXPECT_THAT(
      problem_of([] {
        plan_deepspeed(
            {"--include=a",
             "--exclude=b",
             "--num_gpus=2",
             "--launcher=rsh",
             "--autotuning=run",
             "x"},
            {});
      }),
      ::testing::AllOf(
          HasSubstr("cannot be combined"),
          HasSubstr("mutually exclusive"),
          HasSubstr("--launcher rsh"),
          HasSubstr("plan --apply")));
}

TEST(Deepspeed, HandsVariablesToTheOtherHosts) {
  const TemporaryFolder folder;
  const std::string hosts = (folder.path() / "hosts").string();
  write_file_atomically(hosts, "n1 slots=1\nn2 slots=1\n");
  const Environment environment{
      {"HOME", folder.path().string()}, {"MLFLOW_RUN", "7"}, {"PYTHONPATH", "/lib"}, {"MY", "own"}};
  const auto commands =
      plan_deepspeed({"--hostfile", hosts, "--launcher=ssh", "x.py"}, environment).commands;
  ASSERT_EQ(commands.size(), 2U);
  EXPECT_THAT(commands[1].input, HasSubstr("\"MLFLOW_RUN\":"));
  EXPECT_THAT(commands[1].input, HasSubstr(std::filesystem::current_path().string() + ":/lib"));
  EXPECT_THAT(commands[1].input, ::testing::Not(HasSubstr("\"MY\":")));
}

TEST(Deepspeed, GoesOnWithTheNodesThatAreLeftWhereItIsElastic) {
  const LaunchPlan plan = plan_deepspeed(
                              {"--world_info=" + encode_world({{"n1", {0}}, {"n2", {0}}}),
                               "--node_rank=1",
                               "--elastic_training",
                               "--min_elastic_nodes=1",
                               "x.py"},
                              {})
                              .plan;
  EXPECT_EQ(plan.rendezvous.kind, RendezvousPoint::Kind::kDynamic);
  EXPECT_EQ(plan.rendezvous.is_host, false);
  EXPECT_EQ(plan.min_nodes, 1);
  EXPECT_EQ(plan.max_nodes, 2);
  EXPECT_GT(plan.restarts.most, 0);
}

TEST(Transports, QuoteForTheRemoteShellAndNothingElse) {
  RemoteJob job;
  job.hosts = {{"n1", {0}}, {"n2", {0, 1}}};
  job.folder = "/a b";
  job.exported = {{"NCCL_DEBUG", "in'fo"}};
  job.before = {"/bin/lockstep", "launch"};
  job.after = {"train.py", "--name", "a;b"};
  job.transport_arguments = {"-v"};
  job.ssh_port = "2222";
  const auto ssh = remote_commands("ssh", job);
  ASSERT_EQ(ssh.size(), 2U);
  EXPECT_THAT(
      ssh[1].argv,
      ElementsAre(
          "ssh",
          "-o",
          "BatchMode=yes",
          "-o",
          "ConnectTimeout=10",
          "-p",
          "2222",
          "-v",
          "--",
          "n2",
          "cd '/a b' && exec /bin/lockstep launch --node_rank=1 --watch_stdin --read_stdin "
          "train.py --name 'a;b'"));
  const auto pdsh = remote_commands("pdsh", job);
  EXPECT_THAT(pdsh[0].argv, Contains("n1,n2"));
  EXPECT_THAT(pdsh[0].argv.back(), HasSubstr("--node_rank=%n"));
  EXPECT_THAT(
      pdsh[0].argv.back(), HasSubstr("cd '/a b' && export NCCL_DEBUG='in'\\''fo' && exec "));
  EXPECT_THAT(remote_commands("slurm", job)[0].argv, Contains("--export=ALL"));
  EXPECT_THAT(remote_commands("openmpi", job)[0].argv, Contains("ppr:1:node"));
  EXPECT_THAT(remote_commands("mpich", job)[0].argv, Contains("-genvlist"));
  EXPECT_THAT(remote_commands("mvapich", job)[0].argv, Contains("mpirun_rsh"));
}

// Other users can read arguments, so secrets are passed on stdin or in the environment.
TEST(Transports, PutNoSecretIntoArguments) {
  RemoteJob job;
  job.hosts = {{"n1", {0}}, {"n2", {0, 1}}};
  job.folder = "/";
  job.secret = "the secret of the agents";
  job.exported = {{"HF_TOKEN", "the token"}};
  job.before = {"/bin/lockstep", "launch"};
  for (const char* transport : {"ssh", "openmpi", "mpich", "mvapich", "slurm"}) {
    for (const auto& command : remote_commands(transport, job)) {
      for (const std::string& word : command.argv) {
        EXPECT_THAT(word, ::testing::Not(HasSubstr("the secret"))) << transport;
        EXPECT_THAT(word, ::testing::Not(HasSubstr("the token"))) << transport;
      }
      const bool by_stdin = std::string(transport) == "ssh";
      EXPECT_EQ(command.input.find("the token") != std::string::npos, by_stdin) << transport;
      EXPECT_EQ(command.environment.contains("HF_TOKEN"), !by_stdin) << transport;
    }
  }
  const HandedOver handed{"s", {{"A", "line\nand \xC3\xA9"}}};
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string line = handed.line();
  ASSERT_EQ(::write(ends[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
  ::close(ends[1]);
  const HandedOver read = HandedOver::read(ends[0]);
  EXPECT_EQ(read.secret, handed.secret);
  EXPECT_EQ(read.environment, handed.environment);
  EXPECT_THROW(HandedOver::read(ends[0]), Error);
  ::close(ends[0]);
}

// `deepspeed --hostfile` end to end on three machines; a fake ssh of the test enters their
// namespaces.
TEST(Deepspeed, StartsTheHostsOfAHostfileWithSsh) {
  const std::string reason = testing::Machines::unavailable();
  if (!reason.empty()) {
    GTEST_SKIP() << reason;
  }
  testing::Machines machines(2);
  const TemporaryFolder folder;
  write_file_atomically(
      folder.path() / "ssh",
      "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\n"
      "exec ip netns exec " +
          machines.name(0).substr(0, machines.name(0).size() - 1) +
          "$(($(echo $2 | cut -d. -f4)-1)) sh -c \"$3\"\n");
  std::filesystem::permissions(folder.path() / "ssh", std::filesystem::perms(0755));
  write_file_atomically(folder.path() / "hosts", "10.77.0.1 slots=1\n10.77.0.2 slots=2\n");
  write_file_atomically(folder.path() / ".deepspeed_env", "FROM_FILE=a b\n");
  const auto launch = [&](const std::string& script,
                          const std::string& marker,
                          const std::function<void(pid_t)>& during) {
    return testing::run(
        testing::part(
            "launch",
            {"--hostfile",
             (folder.path() / "hosts").string(),
             "--launcher",
             "ssh",
             "--no_local_rank",
             "--no_python",
             "sh",
             "-c",
             script}),
        {"PATH=" + folder.path().string() + ":" + std::getenv("PATH"),
         "HOME=" + folder.path().string()},
        marker,
        during);
  };
  const Ran ran =
      launch("echo rank $RANK of $WORLD_SIZE, $FROM_FILE, $CROSS_RANK/$CROSS_SIZE", "", {});
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  EXPECT_THAT(ran.output, HasSubstr("10.77.0.1: rank 0 of 3, a b, 0/2\n"));
  EXPECT_THAT(ran.output, HasSubstr("10.77.0.2: rank 2 of 3, a b, 1/2\n"));
  const Ran failed = launch("[ $RANK = 2 ] && exit 5; sleep 60", "", {});
  EXPECT_EQ(failed.status.shell_code(), 5) << failed.error_output;
  EXPECT_LT(failed.seconds, 40);
  const std::string mark = testing::unique_mark();
  const Ran stopped = launch(
      "export " + mark +
          "; trap 'echo saved; exit 0' TERM; [ $RANK = 0 ] && sleep 1; echo started $RANK; while "
          ":; do sleep 0.1; done",
      "started 0",
      [](pid_t pid) { ::kill(pid, SIGTERM); });
  EXPECT_THAT(stopped.output, HasSubstr("10.77.0.1: saved\n"));
  EXPECT_EQ(testing::processes_left(mark), 0);
}

}  // namespace deepspeed_test
}  // namespace lockstep::launch
