// Test of out-of-memory explanations in a memory cgroup.
#include "launch/system/oom_explanation.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/format.h"
#include "launch/helpers.h"

namespace lockstep::launch {
namespace memory_word_test {

using ::testing::HasSubstr;

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
    GTEST_SKIP() << "no memory cgroup is readable";
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
    GTEST_SKIP() << "cannot create a cgroup: " << ran.error_output;
  }
  EXPECT_EQ(ran.status.shell_code(), 137) << ran.error_output;
  EXPECT_THAT(
      ran.error_output,
      HasSubstr("memory    : out of memory: the kernel killed 1 process of this cgroup"));
  EXPECT_THAT(ran.error_output, HasSubstr("rank      : 1 (local_rank: 1)"));
}

}  // namespace memory_word_test
}  // namespace lockstep::launch
