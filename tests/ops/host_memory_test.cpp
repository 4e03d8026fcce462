// Host memory is reused for tensors of any size and does not accumulate.
#include "ops/host_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

namespace lockstep::ops {
namespace host_memory_test {

at::Tensor bytes(int64_t count) {
  return at::empty({count}, at::kByte);
}

TEST(HostMemory, FreeMemoryIsGivenAgainToTensorsOfOtherSizes) {
  keep_host_memory();
  void* const first = bytes(3'000'001).data_ptr();
  const at::Tensor half = bytes(1'500'000), other = bytes(1'300'000);
  EXPECT_EQ(half.data_ptr(), first);
  EXPECT_GT(other.data_ptr(), first);
  const int64_t mapped = host_memory().mapped;
  {
    const at::Tensor between = bytes(2'000'000);
  }
  EXPECT_EQ(bytes(2'100'000).numel(), 2'100'000);
  EXPECT_LE(host_memory().mapped - mapped, 2);
}

TEST(HostMemory, NewZerosAreZeroInMemoryThatIsNewOrNot) {
  keep_host_memory();
  for (const int64_t count : {int64_t{0}, int64_t{100}, int64_t{30} << 20, int64_t{30} << 20}) {
    const at::Tensor zeros = new_zeros(count, at::kByte);
    ASSERT_EQ(zeros.numel(), count);
    EXPECT_TRUE(zeros.eq(0).all().item<bool>()) << count;
    zeros.fill_(7);  // stale content for the next allocation
  }
}

TEST(HostMemory, NoSizeIsRoundedUpToASmallOne) {
  keep_host_memory();
  EXPECT_THROW(c10::GetCPUAllocator()->allocate(SIZE_MAX - 100), c10::Error);
}

TEST(HostMemory, HoldsNoMoreThanWasInUseAtOnce) {
  keep_host_memory();
  const HostMemory before = host_memory();
  // 800 MiB in total, 21 MiB at a time.
  for (int64_t i = 1; i <= 40; ++i) {
    bytes((int64_t{20} << 20) + i * 4096);
  }
  const HostMemory after = host_memory();
  EXPECT_LE(after.used + after.kept, before.used + before.kept + (int64_t{21} << 20));
}

TEST(HostMemory, CountsWhatIsUsedAndKeptAndGivesTheRestBack) {
  keep_host_memory();
  const HostMemory before = host_memory();
  {
    const at::Tensor one = bytes(int64_t{1} << 20);
    EXPECT_EQ(host_memory().used - before.used, int64_t{1} << 20);
  }
  EXPECT_EQ(host_memory().used, before.used);
  for (int64_t i = 1; i <= 40; ++i) {
    bytes((int64_t{20} << 20) + i * 4096);
  }
  // The peak is one of these blocks, and not their total of 800 MiB.
  const int64_t peak = std::max(before.used, before.peak) + (int64_t{21} << 20);
  EXPECT_LE(host_memory().used + host_memory().kept, peak + peak / 4 + (int64_t{64} << 20));
}

TEST(HostMemory, AStepFindsTheBlocksOfTheOneBefore) {
  keep_host_memory();
  // Large blocks that do not overlap in time, among small ones that live through the step.
  const auto step = [] {
    std::vector<at::Tensor> small;
    for (int64_t i = 0; i < 20; ++i) {
      small.push_back(bytes((int64_t{1} << 20) + 4096 * (i % 3)));
    }
    bytes(int64_t{90} << 20);
    bytes(int64_t{50} << 20);
  };
  step();
  const int64_t mapped = host_memory().mapped;
  step();
  step();
  EXPECT_EQ(host_memory().mapped, mapped);
}

TEST(HostMemory, APeakIsForgotten) {
  keep_host_memory();
  bytes(int64_t{400} << 20);
  EXPECT_GE(host_memory().kept, int64_t{400} << 20);
  for (int i = 0; i < 3 * (1 << 14); ++i) {
    bytes(int64_t{1} << 20);
  }
  EXPECT_LT(host_memory().kept, int64_t{400} << 20);
}

TEST(HostMemory, EveryByteOfABlockIsItsOwn) {
  keep_host_memory();
  std::vector<std::thread> threads;
  for (int seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([seed] {
      for (int64_t i = 0; i < 30; ++i) {
        const int64_t size = (int64_t{1} << 18) + 777777 * (i % 5) + seed;
        at::Tensor a = bytes(size), b = bytes(size);
        a.fill_(seed);
        b.fill_(seed + 100);
        EXPECT_EQ(a.eq(seed).sum().item<int64_t>(), size);
        EXPECT_EQ(b.eq(seed + 100).sum().item<int64_t>(), size);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(HostMemory, RawBlocksOfAnySizeAreFreed) {
  keep_host_memory();
  const HostMemory before = host_memory();
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  for (const size_t size : {size_t{100}, size_t{1} << 20}) {
    void* const data = allocator->raw_allocate(size);
    std::memset(data, 1, size);
    allocator->raw_deallocate(data);
  }
  EXPECT_EQ(host_memory().used, before.used);
}

TEST(HostMemory, SmallTensorsAreLeftToTheSystem) {
  keep_host_memory();
  const HostMemory before = host_memory();
  const at::Tensor small = bytes(1000);
  EXPECT_EQ(host_memory().used, before.used);
}

}  // namespace host_memory_test
}  // namespace lockstep::ops
