// Tests the number of available processors.
#include "base/cores.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

namespace lockstep {
namespace cores_test {

namespace fs = std::filesystem;

class Quota : public ::testing::Test {
 protected:
  Quota() {
    char name[] = "/tmp/lockstep-cores-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~Quota() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

  fs::path root_;
};

TEST_F(Quota, OfAContainerIsAtTheRootOfWhatItSees) {
  write("cpu.max", "200000 100000\n");
  EXPECT_EQ(cpu_quota(root_, "0::/\n"), 2);
  // Some container runtimes show the host's path.
  EXPECT_EQ(cpu_quota(root_, "0::/kubepods/pod7/abc\n"), 2);
}

TEST_F(Quota, IsTheLeastOfAllCgroupsAbove) {
  write("kubepods/cpu.max", "6400000 100000\n");
  write("kubepods/pod7/cpu.max", "150000 100000\n");
  write("kubepods/pod7/abc/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root_, "0::/kubepods/pod7/abc\n"), 1.5);
  EXPECT_EQ(cpu_quota(root_, "0::/kubepods\n"), 64);
  EXPECT_EQ(cpu_quota(root_, "0::/\n"), 0);
}

TEST_F(Quota, OfVersionOne) {
  write("cpu/docker/abc/cpu.cfs_quota_us", "50000\n");
  write("cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_, "4:cpu,cpuacct:/docker/abc\n3:memory:/x\n"), 0.5);
  EXPECT_EQ(cpu_quota(root_, "4:cpuset:/docker/abc\n"), 0);
  EXPECT_EQ(cpu_quota(root_, "no colons"), 0);
}

TEST(Cores, FollowTheSchedulersMask) {
  const int all = usable_cpus();
  EXPECT_GE(all, 1);
  EXPECT_LE(all, static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  EXPECT_LE(usable_cores(), all);
  std::thread bound([] {
    cpu_set_t before, one;
    ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &before)) {
        CPU_SET(cpu, &one);
      }
    }
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_cpus(), 1);
    EXPECT_EQ(usable_cores(), 1);
    EXPECT_FALSE(quota_bounds_cpus());
  });
  bound.join();
}

}  // namespace cores_test
}  // namespace lockstep
