// Out-of-memory exceptions of the system and libtorch.
#include "train/machine/out_of_memory.h"

#include <functional>
#include <new>
#include <stdexcept>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace lockstep::train {
namespace out_of_memory_test {

std::optional<Error> found_in(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    return current_out_of_memory();
  }
  ADD_FAILURE() << "nothing was thrown";
  return std::nullopt;
}

TEST(OutOfMemory, IsKnownInEveryForm) {
  const std::vector<std::function<void()>> bodies{
      [] { throw std::bad_alloc(); },
      [] { (void)at::empty({int64_t{1} << 55}); },  // libtorch's CPU allocator
      [] { C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory"); }};
  for (size_t i = 0; i < bodies.size(); ++i) {
    const auto error = found_in(bodies[i]);
    ASSERT_TRUE(error) << i;
    EXPECT_EQ(error->kind(), ErrorKind::kOutOfMemory);
    EXPECT_NE(error->remedy().find("per_device_train_batch_size"), std::string::npos);
    EXPECT_EQ(error->message().find("frame #"), std::string::npos) << "no page of stack";
  }
}

TEST(OutOfMemory, OursKeepsItsOwnRemedy) {
  const auto error =
      found_in([] { throw Error(ErrorKind::kOutOfMemory, "it will not fit", "with --force"); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->remedy(), "with --force");
}

TEST(OutOfMemory, NothingElseIsTakenForIt) {
  EXPECT_FALSE(found_in([] { throw Error(ErrorKind::kData, "out of memory"); }));
  EXPECT_FALSE(found_in([] { throw std::runtime_error("out of memory"); }));
  EXPECT_FALSE(found_in([] { TORCH_CHECK(false, "shapes do not match"); }));
  EXPECT_FALSE(found_in([] { throw 7; }));
}

}  // namespace out_of_memory_test
}  // namespace lockstep::train
