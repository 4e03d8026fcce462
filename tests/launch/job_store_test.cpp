#include "launch/job_store.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "launch/helpers.h"
#include "launch/memory_word.h"
#include "launch/network.h"

namespace lockstep::launch {
namespace {

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

TEST(JobStore, AThousandClientsMeet) {
  // In a network of its own: c10d asks DNS for the name of every client, and DNS servers limit how
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

}  // namespace
}  // namespace lockstep::launch
