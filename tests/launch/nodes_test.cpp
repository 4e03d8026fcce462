// Tests of `lockstep launch` on several machines: real agents and workers in network namespaces.
#include <array>
#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/format.h"
#include "launch/machines.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace nodes_test {

using ::testing::HasSubstr;
using testing::Machines;
using ::testing::Not;
using testing::part;
using testing::Ran;

// A worker that meets all other workers in the store, as a training rank does.
const std::vector<std::string> kMeet{LOCKSTEP_STORE_CLIENT, "meet"};

class Nodes : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string reason = Machines::unavailable();
    if (!reason.empty()) {
      GTEST_SKIP() << reason;
    }
    machines_.emplace(3);
    secret_ = "--rdzv-secret-file=" + secret("secret", "fedcba9876543210").string();
  }

  // Creates a file that only its owner may read.
  std::filesystem::path secret(const char* name, const char* text) {
    write_file_atomically(folder_.path() / name, text);
    std::filesystem::permissions(folder_.path() / name, std::filesystem::perms(0600));
    return folder_.path() / name;
  }

  std::vector<std::string> fixed(int node, const std::vector<std::string>& program, int nodes = 3) {
    std::vector<std::string> arguments{
        fmt::format("--nnodes={}", nodes),
        fmt::format("--node-rank={}", node),
        "--master-addr=" + machines_->address(0),
        "--master-port=29511",
        secret_,
        "--nproc-per-node=2",
        "--propagate-exit-code",
        "--no-python"};
    arguments.insert(arguments.end(), program.begin(), program.end());
    return arguments;
  }

  std::vector<std::string> dynamic(
      const std::string& nodes,
      const std::vector<std::string>& more,
      const std::vector<std::string>& program) {
    std::vector<std::string> arguments{
        "--nnodes=" + nodes,
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=" + machines_->address(0) + ":29512",
        "--rdzv-id=job",
        secret_,
        "--nproc-per-node=1",
        "--propagate-exit-code",
        "--no-python"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), program.begin(), program.end());
    return arguments;
  }

  std::vector<std::string> shell(const std::string& script) { return {"sh", "-c", script}; }

  // A worker that prints its round and stays until its round is `last`, in the form "TERM.WORLD".
  std::vector<std::string> stay_until(const std::string& last) {
    return shell(fmt::format(
        "echo term $LOCKSTEP_TERM world $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT; "
        "touch {0}/$LOCKSTEP_TERM.$WORLD_SIZE.$RANK; "
        "[ $LOCKSTEP_TERM.$WORLD_SIZE = {1} ] && exit 0; exec sleep 100",
        folder_.path().string(),
        last));
  }
  // Waits until all workers of a round have started.
  void wait_for_round(int term, int world) {
    for (int rank = 0; rank < world; ++rank) {
      const auto spoken = folder_.path() / fmt::format("{}.{}.{}", term, world, rank);
      for (int i = 0; i < 6000 && !std::filesystem::exists(spoken); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }

  const TemporaryFolder folder_;
  std::string secret_;
  std::optional<Machines> machines_;
};

TEST_F(Nodes, MeetStatically) {
  std::vector<std::future<Ran>> nodes;
  for (const int node : {2, 0, 1}) {
    nodes.push_back(machines_->launch(node, fixed(node, kMeet)));
  }
  std::string output;
  for (auto& node : nodes) {
    const Ran ran = node.get();
    EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
    output += ran.output;
  }
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_THAT(output, HasSubstr(fmt::format("rank {} of 6 node {} of 3 met\n", rank, rank / 2)));
  }
}

TEST_F(Nodes, MeetDynamicallyBetweenMinimumAndMaximum) {
  const std::vector<std::string> more{"--rdzv-conf", "last_call_timeout=1"};
  auto first = machines_->launch(1, dynamic("2:3", more, kMeet));
  auto second = machines_->launch(0, dynamic("2:3", more, kMeet));
  const Ran a = first.get(), b = second.get();
  EXPECT_EQ(a.status.shell_code(), 0) << a.error_output;
  EXPECT_EQ(b.status.shell_code(), 0) << b.error_output;
  EXPECT_THAT(b.output, HasSubstr("rank 0 of 2 node 0 of 2 met\n"));
  EXPECT_THAT(a.output, HasSubstr("rank 1 of 2 node 1 of 2 met\n"));
}

TEST_F(Nodes, HearOfAFailureAtOnce) {
  const TemporaryFolder folder;
  const std::string now = "date +%s%N";
  const auto script = [&](int node) {
    return shell(fmt::format(
        "{}trap 'date +%s%N > {}/ended{}; exit 1' TERM; while :; do sleep 0.02; done",
        node == 2 ? "if [ $RANK = 5 ]; then sleep 1; date +%s%N > " + folder.path().string() +
                        "/failed; exit 4; fi; "
                  : "",
        folder.path().string(),
        node));
  };
  std::vector<std::future<Ran>> nodes;
  for (const int node : {0, 1, 2}) {
    nodes.push_back(machines_->launch(node, fixed(node, script(node))));
  }
  for (auto& node : nodes) {
    const Ran ran = node.get();
    EXPECT_EQ(ran.status.shell_code(), 4) << ran.error_output;
    EXPECT_THAT(ran.error_output, HasSubstr("host      : node2\n  rank      : 5 (local_rank: 1)"));
  }
  const auto time = [&](const char* name) { return std::stoll(read_file(folder.path() / name)); };
  for (const char* ended : {"ended0", "ended1"}) {
    EXPECT_LT(time(ended) - time("failed"), 20'000'000'000) << ended;
  }
}

TEST_F(Nodes, AreStoppedWhereOneIsKilled) {
  const std::string mark = testing::unique_mark();
  const auto program = shell("export " + mark + "; echo started; sleep 100");
  std::vector<std::future<Ran>> nodes;
  for (const int node : {0, 1}) {
    nodes.push_back(machines_->launch(node, fixed(node, program)));
  }
  nodes.push_back(machines_->launch(
      2, fixed(2, program), "started\nstarted\n", [](pid_t pid) { ::kill(pid, SIGKILL); }));
  for (const int node : {0, 1}) {
    const Ran ran = nodes[node].get();
    EXPECT_EQ(ran.status.shell_code(), 7) << ran.error_output;
    EXPECT_LT(ran.seconds, 40);
    EXPECT_THAT(
        ran.error_output, HasSubstr("node node2 (10.77.0.3) was lost: the connection was closed"));
  }
  nodes[2].get();
  EXPECT_EQ(testing::processes_left(mark), 0);
}

TEST_F(Nodes, AreStoppedWhereTheHostIsKilled) {
  std::vector<std::future<Ran>> nodes;
  const auto program = shell("echo started; sleep 100");
  nodes.push_back(machines_->launch(
      0, fixed(0, program, 2), "started\nstarted\n", [](pid_t pid) { ::kill(pid, SIGKILL); }));
  nodes.push_back(machines_->launch(1, fixed(1, program, 2)));
  const Ran ran = nodes[1].get();
  EXPECT_EQ(ran.status.shell_code(), 7);
  EXPECT_THAT(ran.error_output, HasSubstr("the coordinator's node 10.77.0.1 was lost"));
}

TEST_F(Nodes, GoOnUnderAnHeirWhereTheHostIsKilled) {
  const std::vector<std::string> more{"--max-restarts=1"};
  const auto arguments = dynamic("2:3", more, stay_until("1.2"));
  auto host = machines_->launch(0, arguments, "term 0 world 3", [&](pid_t pid) {
    wait_for_round(0, 3);
    ::kill(pid, SIGKILL);
  });
  std::vector<std::future<Ran>> others;
  for (const int node : {1, 2}) {
    others.push_back(machines_->launch(node, arguments));
  }
  for (auto& node : others) {
    const Ran ran = node.get();
    EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
    EXPECT_EQ(ran.output, "term 0 world 3 restart 0\nterm 1 world 2 restart 1\n");
    EXPECT_THAT(
        ran.error_output,
        HasSubstr("the coordinator's node 10.77.0.1 was lost: the connection was closed; node1 "
                  "(10.77.0.2) hosts it now"));
  }
  host.get();
}

// The old coordinator loses the other nodes and cannot know that they have a new coordinator.
TEST_F(Nodes, AreJoinedByTheOldHostOnceItIsReachedAgain) {
  const std::vector<std::string> more{"--max-restarts=3", "--rdzv-conf=heartbeat_timeout=2"};
  const auto arguments = dynamic("2:3", more, stay_until("1.3"));
  auto host = machines_->launch(0, arguments, "term 0 world 3", [&](pid_t) {
    wait_for_round(0, 3);
    testing::run({"ip", "link", "set", machines_->name(0) + "h", "down"});  // at the switch
    wait_for_round(1, 2);
    testing::run({"ip", "link", "set", machines_->name(0) + "h", "up"});
  });
  std::vector<std::future<Ran>> nodes;
  for (const int node : {1, 2}) {
    nodes.push_back(machines_->launch(node, arguments));
  }
  nodes.push_back(std::move(host));
  for (auto& node : nodes) {
    const Ran ran = node.get();
    EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
    EXPECT_THAT(ran.output, HasSubstr("term 1 world 3 restart 1\n"));
    EXPECT_THAT(ran.output, Not(HasSubstr("term 0 world 2")));
  }
}

// One node would be enough for a round, but this coordinator was stopped and another one has hosted
// the job since.
TEST_F(Nodes, AreJoinedByAHostThatStoodStill) {
  const std::vector<std::string> more{"--max-restarts=3", "--rdzv-conf=heartbeat_timeout=2"};
  const auto arguments = dynamic("1:2", more, stay_until("1.2"));
  auto host = machines_->launch(0, arguments, "term 0 world 2", [&](pid_t pid) {
    wait_for_round(0, 2);
    ::kill(pid, SIGSTOP);
    wait_for_round(1, 1);
    ::kill(pid, SIGCONT);
  });
  const Ran other = machines_->launch(1, arguments).get();
  EXPECT_EQ(other.status.shell_code(), 0) << other.error_output;
  EXPECT_EQ(
      other.output,
      "term 0 world 2 restart 0\nterm 1 world 1 restart 1\nterm 1 world 2 restart 1\n");
  const Ran ran = host.get();
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  EXPECT_EQ(ran.output, "term 0 world 2 restart 0\nterm 1 world 2 restart 1\n");
  // It is redirected, or finds its own coordinator silent like the other agents do, and contacts
  // the standbys itself.
  EXPECT_THAT(
      ran.error_output,
      ::testing::AnyOf(
          HasSubstr("the job continued without this coordinator; 10.77.0.2 port "),
          HasSubstr("node1 (10.77.0.2) hosts it now")));
}

TEST_F(Nodes, AreJoinedByAHostThatIsStartedAnew) {
  const std::vector<std::string> more{"--max-restarts=1"};
  const auto arguments = dynamic("1:2", more, stay_until("1.2"));
  auto host = machines_->launch(0, arguments, "term 0 world 2", [&](pid_t pid) {
    wait_for_round(0, 2);
    ::kill(pid, SIGKILL);
  });
  std::future<Ran> anew;
  auto other = machines_->launch(
      1, arguments, "term 1 world 1", [&](pid_t) { anew = machines_->launch(0, arguments); });
  for (auto* node : {&other, &anew}) {
    const Ran ran = node->get();
    EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
    EXPECT_THAT(ran.output, HasSubstr("term 1 world 2 restart 1\n"));
  }
  host.get();
}

TEST_F(Nodes, GoOnWhereOneHostAfterTheOtherIsKilled) {
  const std::vector<std::string> more{"--max-restarts=2"};
  // A single node is the only standby of the last round, which is a majority of one.
  const auto arguments = dynamic("1:3", more, stay_until("2.1"));
  std::vector<std::future<Ran>> nodes;
  for (const int node : {0, 1}) {
    nodes.push_back(machines_->launch(
        node, arguments, fmt::format("term {} world {}", node, 3 - node), [&, node](pid_t pid) {
          wait_for_round(node, 3 - node);
          ::kill(pid, SIGKILL);
        }));
  }
  const Ran last = machines_->launch(2, arguments).get();
  EXPECT_EQ(last.status.shell_code(), 0) << last.error_output;
  EXPECT_EQ(
      last.output,
      "term 0 world 3 restart 0\nterm 1 world 2 restart 1\nterm 2 world 1 restart 2\n");
}

TEST_F(Nodes, EndWhereThreeRoundsBringNoNewStep) {
  const auto program =
      shell("echo again; [ $RANK = 0 ] && sleep 100; echo 7 0 0 > $LOCKSTEP_STEP_FILE; exit 5");
  auto first = machines_->launch(0, dynamic("2", {"--max-restarts=9"}, program));
  auto second = machines_->launch(1, dynamic("2", {"--max-restarts=9"}, program));
  for (auto* node : {&first, &second}) {
    const Ran ran = node->get();
    EXPECT_EQ(ran.status.shell_code(), 5);
    EXPECT_EQ(ran.output, "again\nagain\nagain\nagain\n");
    EXPECT_THAT(ran.error_output, HasSubstr("3 rounds in a row made no progress"));
  }
}

// The node cannot know whether the other nodes continue without it.
TEST_F(Nodes, EndWhereMostHeirsAreLostWithTheHost) {
  const std::vector<std::string> more{"--max-restarts=9", "--rdzv-conf=join_timeout=12"};
  const auto arguments = dynamic("1:3", more, stay_until("none"));
  std::vector<std::future<Ran>> lost;
  std::array<std::promise<pid_t>, 2> agents;
  for (const int node : {0, 1}) {
    lost.push_back(machines_->launch(node, arguments, "term 0 world 3", [&agents, node](pid_t pid) {
      agents.at(static_cast<size_t>(node)).set_value(pid);
    }));
  }
  auto left = machines_->launch(2, arguments);
  const pid_t host = agents[0].get_future().get(), standby = agents[1].get_future().get();
  wait_for_round(0, 3);
  // Both at once: a surviving standby would begin a round of two, of which the last node is a
  // majority.
  ::kill(standby, SIGKILL);
  ::kill(host, SIGKILL);
  const Ran last = left.get();
  EXPECT_EQ(last.status.shell_code(), 7);
  EXPECT_EQ(last.output, "term 0 world 3 restart 0\n");
  EXPECT_THAT(last.error_output, HasSubstr("1 of 2 nodes have joined"));
  EXPECT_THAT(last.error_output, HasSubstr("only 1 of 2 nodes joined"));
}

TEST_F(Nodes, NoticeThatOneIsSilentWithinFiveSeconds) {
  const TemporaryFolder folder;
  const auto program = shell("echo started; exec sleep 100");
  pid_t paused = 0;
  auto stopped = std::chrono::steady_clock::now();
  auto first = machines_->launch(0, fixed(0, program, 2));
  auto second = machines_->launch(1, fixed(1, program, 2), "started\nstarted\n", [&](pid_t pid) {
    ::kill(pid, SIGSTOP);
    paused = pid;
    stopped = std::chrono::steady_clock::now();
  });
  const Ran ran = first.get();
  const auto noticed = std::chrono::steady_clock::now() - stopped;
  EXPECT_LT(noticed, std::chrono::seconds(40));
  EXPECT_EQ(ran.status.shell_code(), 7);
  EXPECT_THAT(ran.error_output, HasSubstr("node node1 (10.77.0.2) was lost: silent for "));
  ::kill(paused, SIGCONT);
  const Ran late = second.get();
  EXPECT_EQ(late.status.shell_code(), 7) << late.error_output;
}

TEST_F(Nodes, NoticeACutLink) {
  const auto program = shell("echo started; exec sleep 100");
  const std::vector<std::string> quick{"--rdzv-conf", "heartbeat_timeout=2"};
  auto first = machines_->launch(0, dynamic("2", quick, program));
  auto second = machines_->launch(1, dynamic("2", quick, program), "started\n", [&](pid_t) {
    machines_->shell(1, "ip link set eth0 down");
  });
  for (auto* node : {&first, &second}) {
    const Ran ran = node->get();
    EXPECT_EQ(ran.status.shell_code(), 7);
    EXPECT_THAT(ran.error_output, HasSubstr("was lost: silent for"));
  }
}

TEST_F(Nodes, TakeALateOneInAndGoOnWithoutALostOne) {
  const TemporaryFolder folder;
  // Workers run until there are three of them or, in a later round, until the killed node is gone.
  const auto program = shell(
      "echo round $LOCKSTEP_ROUND world $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT; touch " +
      folder.path().string() +
      "/$LOCKSTEP_ROUND.$RANK; [ $LOCKSTEP_ROUND = 2 ] && exit 0; exec sleep 100");
  // The workers of both remaining nodes have started.
  const auto wait_for = [&](int round) {
    for (const int rank : {0, 1}) {
      while (!std::filesystem::exists(folder.path() / fmt::format("{}.{}", round, rank))) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  };
  const std::vector<std::string> more{"--rdzv-conf", "last_call_timeout=0.3", "--max-restarts=1"};
  auto first = machines_->launch(0, dynamic("2:3", more, program));
  std::future<Ran> third;
  auto second = machines_->launch(1, dynamic("2:3", more, program), "round 0 world 2", [&](pid_t) {
    wait_for(0);
    third = machines_->launch(2, dynamic("2:3", more, program), "round 1 world 3", [&](pid_t pid) {
      wait_for(1);
      ::kill(pid, SIGKILL);
    });
  });
  for (auto* node : {&first, &second}) {
    const Ran ran = node->get();
    EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
    EXPECT_EQ(
        ran.output,
        "round 0 world 2 restart 0\nround 1 world 3 restart 0\nround 2 world 2 restart 1\n");
  }
  third.get();
}

TEST_F(Nodes, RestartTogetherAfterAFailure) {
  const TemporaryFolder folder;
  // The first worker has started before the second fails.
  const auto program = shell(fmt::format(
      "echo restart $TORCHELASTIC_RESTART_COUNT; touch {0}/$RANK; [ $LOCKSTEP_ROUND = 1 ] && exit "
      "0; [ $RANK = 0 ] && exec sleep 100; until [ -e {0}/0 ]; do sleep 0.02; done; exit 3",
      folder.path().string()));
  const std::vector<std::string> more{"--max-restarts=1"};
  auto first = machines_->launch(0, dynamic("2", more, program));
  auto second = machines_->launch(1, dynamic("2", more, program));
  for (auto* node : {&first, &second}) {
    const Ran ran = node->get();
    EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
    EXPECT_EQ(ran.output, "restart 0\nrestart 1\n");
  }
}

TEST_F(Nodes, ForwardASignalToAllAndPassPreemptionOn) {
  const auto program =
      shell("trap 'sleep 1; echo saved; exit 75' TERM; echo started; while :; do sleep 0.05; done");
  auto first = machines_->launch(0, fixed(0, program, 2));
  auto second = machines_->launch(
      1, fixed(1, program, 2), "started\nstarted\n", [](pid_t pid) { ::kill(pid, SIGTERM); });
  for (auto* node : {&first, &second}) {
    const Ran ran = node->get();
    EXPECT_EQ(ran.status.shell_code(), 75) << ran.error_output;
    EXPECT_THAT(ran.output, HasSubstr("saved\nsaved\n"));
  }
}

TEST_F(Nodes, MeetWithoutASecretOnlyWhereThatIsAskedFor) {
  secret_ = "--rdzv-conf=join_timeout=20";
  for (const int node : {0, 1}) {
    const Ran ran = machines_->launch(node, fixed(node, kMeet, 2)).get();
    EXPECT_EQ(ran.status.shell_code(), 2);
    EXPECT_THAT(ran.error_output, HasSubstr("a secret is required for a rendezvous at 10.77.0.1"));
  }
  secret_ = "--rdzv-insecure";
  auto host = machines_->launch(0, fixed(0, kMeet, 2));
  const Ran ran = machines_->launch(1, fixed(1, kMeet, 2)).get();
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  EXPECT_EQ(host.get().status.shell_code(), 0);
}

// The store has no secret: it serves the machines of the round.
TEST_F(Nodes, AStoreIsClosedToOtherMachines) {
  const auto program = shell(fmt::format(
      "[ $RANK = 0 ] && echo $MASTER_PORT > {0}/new && mv {0}/new {0}/port; "
      "until [ -e {0}/done ]; do sleep 0.05; done",
      folder_.path().string()));
  auto first = machines_->launch(0, fixed(0, program, 2));
  auto second = machines_->launch(1, fixed(1, program, 2));
  while (!std::filesystem::exists(folder_.path() / "port")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::string port = read_file(folder_.path() / "port");
  const auto code_from = [&](int machine) {
    const Ran ran = machines_->shell(
        machine,
        fmt::format(
            "{} --part ask-store {} {} 0 || echo code $?",
            part("x")[0],
            machines_->address(0),
            port.substr(0, port.size() - 1)));
    return ran.output;
  };
  EXPECT_EQ(code_from(1), "");
  EXPECT_EQ(code_from(2), "code 1\n");
  write_file_atomically(folder_.path() / "done", "");
  EXPECT_EQ(first.get().status.shell_code(), 0);
  EXPECT_EQ(second.get().status.shell_code(), 0);
}

// As in Debian's /etc/hosts, the machine's own name resolves to loopback, but only on that machine.
TEST_F(Nodes, MeetAtANameThatIsLoopbackOnItsOwnMachine) {
  write_file_atomically(folder_.path() / "own", "127.0.0.1 localhost\n127.0.1.1 node0\n");
  write_file_atomically(folder_.path() / "other", "127.0.0.1 localhost\n10.77.0.1 node0\n");
  machines_->set_hosts(0, folder_.path() / "own");
  machines_->set_hosts(1, folder_.path() / "other");
  const auto arguments = [&](int node) {
    std::vector<std::string> all = fixed(
        node,
        shell("echo master $MASTER_ADDR; "
              "grep -hE ': 0+:[0-9A-F]+ 0+:0000 0A' /proc/net/tcp /proc/net/tcp6 >&2; "
              "exec \"$0\" meet"),
        2);
    all.back().replace(all.back().find("$0"), 2, kMeet[0]);
    *std::find(all.begin(), all.end(), "--master-addr=10.77.0.1") = "--master-addr=node0";
    return all;
  };
  auto first = machines_->launch(0, arguments(0));
  auto second = machines_->launch(1, arguments(1));
  for (auto* node : {&first, &second}) {
    const Ran ran = node->get();
    EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
    EXPECT_THAT(ran.output, HasSubstr("master 10.77.0.1\n"));
    EXPECT_THAT(
        ran.error_output, Not(HasSubstr("00:0000 0A")));  // no socket listens on all addresses
  }
}

// Like the name of a pod, which resolves only minutes after other nodes look it up.
TEST_F(Nodes, LookForANameUntilItIsKnown) {
  const std::filesystem::path own = folder_.path() / "own", other = folder_.path() / "other";
  write_file_atomically(own, "127.0.0.1 localhost\n10.77.0.1 set-node-0-0.set\n");
  write_file_atomically(other, "127.0.0.1 localhost\n");
  machines_->set_hosts(0, own);
  machines_->set_hosts(1, other);
  const auto arguments = [&](int node) {
    std::vector<std::string> all = fixed(node, kMeet, 2);
    *std::find(all.begin(), all.end(), "--master-addr=10.77.0.1") =
        "--master-addr=set-node-0-0.set";
    return all;
  };
  auto second = machines_->launch(1, arguments(1), "cannot resolve", [&](pid_t) {
    std::ofstream(other, std::ios::app) << "10.77.0.1 set-node-0-0.set\n";  // the same file
  });
  auto first = machines_->launch(0, arguments(0));
  for (auto* node : {&first, &second}) {
    const Ran ran = node->get();
    EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  }
}

TEST_F(Nodes, ProveTheSecret) {
  const std::string right = secret("right", "0123456789abcdef").string(),
                    wrong = secret("wrong", "0123456789abcdeX").string();
  secret_ = "--rdzv-secret-file=" + right;
  auto host = machines_->launch(0, dynamic("2", {}, kMeet));
  auto second_arguments = dynamic("2", {}, kMeet);
  secret_ = "--rdzv-secret-file=" + wrong;
  const Ran refused = machines_->launch(2, dynamic("2", {}, kMeet)).get();
  EXPECT_EQ(refused.status.shell_code(), 2);
  EXPECT_THAT(
      refused.error_output,
      HasSubstr("the secret (--rdzv-secret-file) or the job id (--rdzv-id) differs"));
  secret_ = "--rdzv-insecure";
  const Ran without = machines_->launch(2, dynamic("2", {}, kMeet)).get();
  EXPECT_EQ(without.status.shell_code(), 2);
  EXPECT_THAT(without.error_output, HasSubstr("requires a secret"));
  auto second = machines_->launch(1, second_arguments);
  EXPECT_EQ(host.get().status.shell_code(), 0);
  EXPECT_EQ(second.get().status.shell_code(), 0);
}

TEST_F(Nodes, TellABusyPortAndAnUnreachableAddress) {
  const Ran none = machines_
                       ->launch(
                           1,
                           {"--nnodes=2",
                            "--rdzv-backend=c10d",
                            "--rdzv-endpoint=10.77.0.99:29512",
                            "--rdzv-conf=join_timeout=3",
                            "--rdzv-insecure",
                            "--no-python",
                            "true"})
                       .get();
  EXPECT_EQ(none.status.shell_code(), 3);
  EXPECT_THAT(
      none.error_output,
      HasSubstr("rendezvous endpoint 10.77.0.99 port 29512 is unreachable from eth0 (10.77.0.2)"));
  const Ran busy = machines_->shell(
      0,
      fmt::format(
          "{0} --part launch --nnodes=2 --rdzv-insecure --master-addr=10.77.0.1 "
          "--master-port=29513 --no-python "
          "true & first=$!; "
          "until grep -q :7349 /proc/net/tcp; do sleep 0.05; done; {0} --part launch --nnodes=2 "
          "--rdzv-insecure "
          "--master-addr=10.77.0.1 --master-port=29513 "
          "--no-python true || "
          "echo code $?; kill $first; wait $first || true",
          part("x")[0]));
  EXPECT_THAT(busy.output, HasSubstr("code 3"));
  EXPECT_THAT(busy.error_output, HasSubstr("port 29513 of 10.77.0.1 is in use by PID "));
}

TEST_F(Nodes, TellWhichPairCannotConnect) {
  machines_->shell(1, "ip route add unreachable 10.77.0.3/32");
  std::vector<std::future<Ran>> nodes;
  for (const int node : {0, 1, 2}) {
    nodes.push_back(machines_->launch(node, fixed(node, kMeet)));
  }
  for (auto& node : nodes) {
    const Ran ran = node.get();
    EXPECT_EQ(ran.status.shell_code(), 3) << ran.error_output;
    EXPECT_LT(ran.seconds, 40);
    EXPECT_THAT(ran.error_output, HasSubstr("node1 (10.77.0.2) -> node2 (10.77.0.3) port "));
    EXPECT_THAT(ran.error_output, HasSubstr("No route to host"));
    EXPECT_THAT(ran.error_output, HasSubstr("node2 (10.77.0.3) -> node1 (10.77.0.2) port "));
  }
}

TEST_F(Nodes, RefuseARankThatIsTaken) {
  auto host = machines_->launch(0, fixed(0, kMeet, 2));
  auto first = machines_->launch(1, fixed(1, kMeet, 2));
  const Ran again = machines_->launch(2, fixed(1, kMeet, 2)).get();
  const bool refused = again.error_output.find("node rank 1 is taken by") != std::string::npos;
  const Ran other = first.get();
  EXPECT_TRUE(refused || other.error_output.find("node rank 1 is taken by") != std::string::npos)
      << again.error_output << other.error_output;
  EXPECT_EQ(host.get().status.shell_code(), 0);
}

}  // namespace nodes_test
}  // namespace lockstep::launch
