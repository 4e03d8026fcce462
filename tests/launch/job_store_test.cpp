#include "launch/job_store.h"

#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "comm/store.h"
#include "launch/helpers.h"
#include "launch/memory_word.h"
#include "launch/network.h"
#include "launch/store_protocol.h"

namespace lockstep::launch {
namespace job_store_test {

using ::testing::HasSubstr;

const testing::RegisterPart thousand("thousand", [](int, char**) {
  const JobStore store;
  comm::Rendezvous rendezvous;
  rendezvous.port = store.port();
  rendezvous.size = 1000;
  rendezvous.hosted_by_agent = true;
  std::vector<comm::Store> clients;
  for (rendezvous.rank = 0; rendezvous.rank < rendezvous.size; ++rendezvous.rank) {
    clients.push_back(comm::join_store(rendezvous));
    clients.back()->add("met", 1);
  }
  return clients.back()->add("met", 0) == 1000 ? 0 : 1;
});

comm::Store join(const JobStore& store) {
  comm::Rendezvous rendezvous;
  rendezvous.port = store.port();
  rendezvous.hosted_by_agent = true;
  return comm::join_store(rendezvous);
}

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string text(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

TEST(JobStore, AnswersC10dsClientsAsItsOwnServerDoes) {
  const JobStore store;
  const comm::Store a = join(store), b = join(store);
  a->set("key", bytes("1"));
  EXPECT_EQ(text(b->get("key")), "1");
  EXPECT_EQ(a->add("number", 5), 5);
  EXPECT_EQ(b->add("number", -7), -2);
  EXPECT_TRUE(a->check({"key"}));
  EXPECT_FALSE(a->check({"key", "none"}));
  EXPECT_EQ(text(a->compareSet("cas", bytes(""), bytes("v1"))), "v1");
  EXPECT_EQ(text(a->compareSet("cas", bytes("v0"), bytes("v2"))), "v1");
  EXPECT_EQ(text(a->compareSet("cas", bytes("v1"), bytes("v2"))), "v2");
  EXPECT_EQ(text(a->compareSet("none", bytes("v0"), bytes("v2"))), "v0");
  EXPECT_TRUE(a->deleteKey("cas"));
  EXPECT_FALSE(a->deleteKey("cas"));
  a->append("long", bytes("x"));
  a->append("long", bytes("y"));
  EXPECT_EQ(text(b->get("long")), "xy");
  a->multiSet({"m1", "m2"}, {bytes("p"), bytes("")});
  EXPECT_THAT(b->multiGet({"m1", "m2"}), ::testing::ElementsAre(bytes("p"), bytes("")));
  EXPECT_EQ(a->getNumKeys(), 5);
  EXPECT_THAT(a->listKeys(), ::testing::UnorderedElementsAre("key", "number", "long", "m1", "m2"));
  a->queuePush("queue", bytes("1"));
  a->queuePush("queue", bytes("2"));
  EXPECT_EQ(b->queueLen("queue"), 2);
  EXPECT_EQ(text(b->queuePop("queue", /*block=*/true)), "1");
  EXPECT_EQ(text(b->queuePop("queue", /*block=*/false)), "2");
  EXPECT_ANY_THROW(b->queuePop("queue", /*block=*/false));
  const std::string large(20'000'000, 'x');
  a->set("large", bytes(large));
  EXPECT_EQ(text(b->get("large")), large);
}

TEST(JobStore, WakesThoseThatWait) {
  const JobStore store;
  const comm::Store a = join(store), b = join(store);
  EXPECT_ANY_THROW(a->wait({"never"}, std::chrono::milliseconds(30)));
  std::thread later([&] {
    b->set("one", bytes("1"));
    b->add("two", 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    b->append("three", bytes("3"));
    b->queuePush("queue", bytes("q"));
  });
  a->wait({"one", "two", "three"}, std::chrono::seconds(20));
  EXPECT_EQ(text(a->queuePop("queue", /*block=*/true)), "q");
  later.join();
  b->set("never", bytes("late"));  // the wait that was given up is not answered any more
  EXPECT_EQ(text(a->get("never")), "late");
}

TEST(JobStore, CutsOffWhatIsNoClient) {
  const JobStore store;
  const Connecting stranger = connect_within("127.0.0.1", store.port(), std::chrono::seconds(5));
  ASSERT_EQ(stranger.error, "");
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  ASSERT_GT(::send(stranger.socket.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
  pollfd poll{stranger.socket.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&poll, 1, 20000), 1);
  char byte = 0;
  EXPECT_LE(::recv(stranger.socket.get(), &byte, 1, 0), 0);
  EXPECT_EQ(join(store)->add("still", 1), 1);
}

// Asks the store at ADDRESS PORT for a sign of life, as USER: exit code 0 where it answers.
const testing::RegisterPart ask_store("ask-store", [](int, char** argv) {
  const auto user = static_cast<uid_t>(std::stoi(argv[2]));
  if (::setresuid(user, user, user) != 0) {
    return 99;
  }
  const Connecting stranger = connect_within(argv[0], std::stoi(argv[1]), std::chrono::seconds(10));
  const std::string question = StoreProtocol::greeting_and_ping(1);
  ::send(stranger.socket.get(), question.data(), question.size(), MSG_NOSIGNAL);
  pollfd poll{stranger.socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&poll, 1, 20000) == 1 && ::recv(stranger.socket.get(), &byte, 1, 0) == 1 ? 0 : 1;
});

TEST(JobStore, ServesItsOwnUserAlone) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can act as somebody else";
  }
  const JobStore store;
  const auto code_as = [&](const char* user) {
    return testing::run(
               testing::part("ask-store", {"127.0.0.1", std::to_string(store.port()), user}))
        .status.shell_code();
  };
  if (code_as("65534") == 99) {
    GTEST_SKIP() << "no other user here";
  }
  EXPECT_EQ(code_as("0"), 0);
  EXPECT_EQ(code_as("65534"), 1);
  EXPECT_EQ(join(store)->add("still", 1), 1);
}

TEST(JobStore, BearsAClientThatWantsAllMemory) {
  const JobStore store;
  const std::vector<uint8_t> large(60'000'000, 'x');
  const comm::Store good = join(store);
  int refused = 0;
  for (int client = 0; client < 8; ++client) {
    try {
      const comm::Store greedy = join(store);
      for (int i = 0; i < 8; ++i) {
        greedy->append("large", large);
        greedy->check({"large"});
      }
    } catch (const std::exception&) {
      ++refused;
    }
  }
  EXPECT_EQ(refused, 8);
  EXPECT_EQ(good->add("still", 1), 1);
}

TEST(JobStore, AThousandClientsMeet) {
  // In a network of its own: c10d's clients ask DNS for their own names, and DNS servers limit how
  // often they answer.
  std::vector<std::string> argv{
      "unshare",
      "--net",
      "sh",
      "-c",
      "ip link set lo up && ulimit -n 8192 || exit 99; exec \"$@\"",
      "sh"};
  const auto program = testing::part("thousand");
  argv.insert(argv.end(), program.begin(), program.end());
  const auto ran = testing::run(argv);
  if (ran.error_output.find("unshare failed") != std::string::npos ||
      ran.status.shell_code() == 99) {
    GTEST_SKIP() << "no network namespace here: " << ran.error_output;
  }
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
}

TEST(JobStore, IsReachedAtItsAddressAlone) {
  const JobStore store("127.0.0.1");
  const std::chrono::milliseconds soon(300);
  EXPECT_EQ(connect_within("127.0.0.1", store.port(), soon).error, "");
  // Another address of loopback stands for another interface: the server itself listens on all.
  EXPECT_NE(connect_within("127.0.0.2", store.port(), soon).error, "");
}

TEST(JobStore, TellsWhoHasThePort) {
  const JobStore store;
  try {
    const JobStore second("127.0.0.1", store.port());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kEnvironment);
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            fmt::format("port {} of 127.0.0.1 is taken by PID {}", store.port(), ::getpid())));
  }
}

const testing::RegisterPart eater("eat", [](int, char**) {
  std::vector<std::string> eaten;
  while (std::getenv("RANK") == std::string("1")) {
    eaten.emplace_back(size_t{16} << 20, 'x');
  }
  return 0;
});

TEST(MemoryWord, TellsThatTheCgroupKilledAWorker) {
  const auto counters = read_memory_counters();
  if (!counters) {
    GTEST_SKIP() << "no memory cgroup can be read here";
  }
  const std::string folder = fmt::format("{}/lockstep-test-{}", counters->folder, ::getpid());
  const bool version1 = std::ifstream(counters->folder + "/memory.limit_in_bytes").good();
  const char* limit = version1 ? "memory.limit_in_bytes" : "memory.max";
  std::vector<std::string> argv{
      "sh",
      "-c",
      fmt::format(
          "mkdir {0} && echo 400M > {0}/{1} && echo $$ > {0}/cgroup.procs || exit 99; exec \"$@\"",
          folder,
          limit),
      "sh"};
  std::vector<std::string> arguments{"2"};
  const auto worker = testing::part("eat");
  arguments.insert(arguments.end(), worker.begin(), worker.end());
  const auto supervised = testing::part("supervise", arguments);
  argv.insert(argv.end(), supervised.begin(), supervised.end());
  const auto ran = testing::run(argv);
  testing::run({"rmdir", folder});
  if (ran.status.shell_code() == 99) {
    GTEST_SKIP() << "no cgroup can be made here: " << ran.error_output;
  }
  EXPECT_EQ(ran.status.shell_code(), 137) << ran.error_output;
  EXPECT_THAT(
      ran.error_output,
      HasSubstr("memory    : out of memory: the kernel killed 1 process of this cgroup"));
  EXPECT_THAT(ran.error_output, HasSubstr("rank      : 1 (local_rank: 1)"));
}

}  // namespace job_store_test
}  // namespace lockstep::launch
