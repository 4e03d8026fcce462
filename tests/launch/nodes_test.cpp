// `lockstep launch` on several machines: real agents and workers in network namespaces.
#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/format.h"
#include "comm/store.h"
#include "launch/machines.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace nodes_test {

using ::testing::HasSubstr;
using testing::Machines;
using ::testing::Not;
using testing::part;
using testing::Ran;
using testing::RegisterPart;

// A worker that meets all the others in the store, as a training rank would.
const RegisterPart meet("meet", [](int, char**) {
  const auto number = [](const char* name) { return std::stoi(std::getenv(name)); };
  comm::Rendezvous rendezvous;
  rendezvous.address = std::getenv("MASTER_ADDR");
  rendezvous.port = number("MASTER_PORT");
  rendezvous.rank = number("RANK");
  rendezvous.size = number("WORLD_SIZE");
  rendezvous.hosted_by_agent = true;
  const comm::Store store = comm::join_store(rendezvous);
  const int64_t here = store->add("met", 1);
  if (here == rendezvous.size) {
    store->set("all", std::vector<uint8_t>{1});
  }
  store->wait({"all"}, std::chrono::seconds(20));
  std::printf(
      "rank %d of %d node %s of %s met\n",
      rendezvous.rank,
      rendezvous.size,
      std::getenv("GROUP_RANK"),
      std::getenv("GROUP_WORLD_SIZE"));
  return 0;
});

class Nodes : public ::testing::Test {
 protected:
  void SetUp() override {
    static const std::string reason = Machines::unavailable();
    if (!reason.empty()) {
      GTEST_SKIP() << reason;
    }
    machines_.emplace(3);
  }

  std::vector<std::string> fixed(int node, const std::vector<std::string>& program, int nodes = 3) {
    std::vector<std::string> arguments{
        fmt::format("--nnodes={}", nodes),
        fmt::format("--node-rank={}", node),
        "--master-addr=" + machines_->address(0),
        "--master-port=29511",
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
        "--nproc-per-node=1",
        "--propagate-exit-code",
        "--no-python"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), program.begin(), program.end());
    return arguments;
  }

  std::vector<std::string> shell(const std::string& script) { return {"sh", "-c", script}; }

  std::optional<Machines> machines_;
};

TEST_F(Nodes, MeetStatically) {
  std::vector<std::future<Ran>> nodes;
  for (const int node : {2, 0, 1}) {
    nodes.push_back(machines_->launch(node, fixed(node, part("meet"))));
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
  auto first = machines_->launch(1, dynamic("2:3", more, part("meet")));
  auto second = machines_->launch(0, dynamic("2:3", more, part("meet")));
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
  EXPECT_THAT(ran.error_output, HasSubstr("the node that hosts the job, 10.77.0.1, was lost"));
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
  // Workers run until three of them are there, or, in a later round, until the killed node is gone.
  const auto program = shell(
      "echo round $LOCKSTEP_ROUND world $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT; touch " +
      folder.path().string() +
      "/$LOCKSTEP_ROUND.$RANK; [ $LOCKSTEP_ROUND = 2 ] && exit 0; exec sleep 100");
  // The workers of both nodes that stay have spoken.
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
  // The first has spoken before the second fails.
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

TEST_F(Nodes, ProveTheSecret) {
  const TemporaryFolder folder;
  const auto secret = [&](const char* name, const char* text) {
    write_file_atomically(folder.path() / name, text);
    std::filesystem::permissions(folder.path() / name, std::filesystem::perms(0600));
    return "--rdzv-secret-file=" + (folder.path() / name).string();
  };
  const std::string right = secret("right", "0123456789abcdef"),
                    wrong = secret("wrong", "0123456789abcdeX");
  auto host = machines_->launch(0, dynamic("2", {right}, part("meet")));
  const Ran refused = machines_->launch(2, dynamic("2", {wrong}, part("meet"))).get();
  EXPECT_EQ(refused.status.shell_code(), 2);
  EXPECT_THAT(refused.error_output, HasSubstr("the secret is not the same (--rdzv-secret-file)"));
  const Ran without = machines_->launch(2, dynamic("2", {}, part("meet"))).get();
  EXPECT_EQ(without.status.shell_code(), 2);
  EXPECT_THAT(without.error_output, HasSubstr("it wants a secret"));
  auto second = machines_->launch(1, dynamic("2", {right}, part("meet")));
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
                            "--no-python",
                            "true"})
                       .get();
  EXPECT_EQ(none.status.shell_code(), 3);
  EXPECT_THAT(
      none.error_output,
      HasSubstr(
          "the meeting point 10.77.0.99 port 29512 cannot be reached out of eth0 (10.77.0.2)"));
  const Ran busy = machines_->shell(
      0,
      fmt::format(
          "{0} --part launch --nnodes=2 --master-addr=10.77.0.1 --master-port=29513 --no-python "
          "true & first=$!; "
          "until grep -q :7349 /proc/net/tcp; do sleep 0.05; done; {0} --part launch --nnodes=2 "
          "--master-addr=10.77.0.1 --master-port=29513 "
          "--no-python true || "
          "echo code $?; kill $first; wait $first || true",
          part("x")[0]));
  EXPECT_THAT(busy.output, HasSubstr("code 3"));
  EXPECT_THAT(busy.error_output, HasSubstr("port 29513 of 10.77.0.1 is taken by PID "));
}

TEST_F(Nodes, TellWhichPairCannotConnect) {
  machines_->shell(1, "ip route add unreachable 10.77.0.3/32");
  std::vector<std::future<Ran>> nodes;
  for (const int node : {0, 1, 2}) {
    nodes.push_back(machines_->launch(node, fixed(node, part("meet"))));
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
  auto host = machines_->launch(0, fixed(0, part("meet"), 2));
  auto first = machines_->launch(1, fixed(1, part("meet"), 2));
  const Ran again = machines_->launch(2, fixed(1, part("meet"), 2)).get();
  const bool refused = again.error_output.find("node rank 1 is taken by") != std::string::npos;
  const Ran other = first.get();
  EXPECT_TRUE(refused || other.error_output.find("node rank 1 is taken by") != std::string::npos)
      << again.error_output << other.error_output;
  EXPECT_EQ(host.get().status.shell_code(), 0);
}

}  // namespace nodes_test
}  // namespace lockstep::launch
