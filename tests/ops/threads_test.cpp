// Custom loops use as many threads as libtorch.
#include <filesystem>
#include <iterator>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "ops/activations.h"

namespace lockstep::ops {
namespace threads_test {

std::ptrdiff_t count_threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

TEST(Threads, ALoopRunsOnAsManyAsThereAre) {
  const at::Tensor x = at::ones({int64_t{1} << 20});
  const int before = at::get_num_threads();
  std::ptrdiff_t more = 0;
  std::thread([&] {  // a thread whose OpenMP pool does not exist yet
    at::set_num_threads(3);
    const std::ptrdiff_t alone = count_threads();
    swiglu(x, x);
    more = count_threads() - alone;
  })
      .join();
  at::set_num_threads(before);
  EXPECT_EQ(more, 2);
}

}  // namespace threads_test
}  // namespace lockstep::ops
