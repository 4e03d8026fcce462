// Tests of GPU discovery and assignment.
#include "train/machine/gpus.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <fstream>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/error.h"
#include "comm/process_group.h"
#include "ops/cuda_loops.h"
#include "temporary_folder.h"

namespace lockstep::train {
namespace gpus_test {

TEST(Gpus, DeviceFilesShowThemUnlessTheyAreHidden) {
  const TemporaryFolder folder;
  EXPECT_FALSE(shows_gpus(folder.path(), nullptr));
  std::ofstream(folder.path() / "nvidiactl").flush();
  EXPECT_FALSE(shows_gpus(folder.path(), nullptr)) << "a driver without GPUs";
  std::ofstream(folder.path() / "nvidia3").flush();
  EXPECT_TRUE(shows_gpus(folder.path(), nullptr));
  EXPECT_TRUE(shows_gpus(folder.path(), "3"));
  EXPECT_FALSE(shows_gpus(folder.path(), ""));
  EXPECT_FALSE(shows_gpus(folder.path(), "-1"));
}

TEST(Gpus, ARankTakesItsOwnOrTheOnlyOne) {
  EXPECT_EQ(gpu_of(2, 4, 4), 2);
  EXPECT_EQ(gpu_of(3, 4, 1), 0);  // `srun --gpus-per-task=1`
  EXPECT_THROW(gpu_of(2, 4, 2), Error);
}

TEST(Gpus, TwoRanksDoNotShareOne) {
  const comm::Store store = c10::make_intrusive<c10d::HashStore>();
  claim_gpu(store, "00ab", 0);
  claim_gpu(store, "00ac", 1);
  EXPECT_THROW(claim_gpu(store, "00ab", 2), Error);
}

#ifdef LOCKSTEP_CUDA_LIBRARY
ops::CudaLoops g_loops;
bool g_has_nccl = false;

/// Opens the CUDA library. Replaces missing CUDA libraries of libtorch with empty ones, which are
/// never called. Symbols of our library are resolved immediately, because it is linked that way.
void* open_cuda_library(const std::filesystem::path& folder) {
  const std::string missing = ": cannot open shared object file";
  for (int tries = 0; tries < 20; ++tries) {
    if (void* library = ::dlopen(LOCKSTEP_CUDA_LIBRARY, RTLD_LAZY | RTLD_LOCAL)) {
      return library;
    }
    const std::string error = ::dlerror();
    const std::string name = error.substr(0, error.find(missing));
    const std::string stub = (folder / name).string();
    const std::string make = "c++ -shared -Wl,-soname," + name + " -x c /dev/null -o " + stub;
    if (name == error || std::system(make.c_str()) != 0 ||
        ::dlopen(stub.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr) {
      ADD_FAILURE() << error;
      return nullptr;
    }
  }
  return nullptr;
}

/// Works without a driver: every entry point exists and every required symbol is resolved.
TEST(Gpus, TheCudaLibraryOpensAndOffersEverything) {
  const TemporaryFolder folder;
  void* library = open_cuda_library(folder.path());
  ASSERT_NE(library, nullptr);
  using Register = void (*)(void (*)(comm::BackendFactory), void (*)(const ops::CudaLoops&));
  const auto offer = reinterpret_cast<Register>(::dlsym(library, "lockstep_cuda_register"));
  ASSERT_NE(offer, nullptr);
  offer(
      [](comm::BackendFactory factory) { g_has_nccl = factory != nullptr; },
      [](const ops::CudaLoops& loops) { g_loops = loops; });
  EXPECT_TRUE(g_has_nccl);
  using Loop = void (*)();  // type of every member
  const auto loops =
      std::bit_cast<std::array<Loop, sizeof(ops::CudaLoops) / sizeof(Loop)>>(g_loops);
  for (size_t i = 0; i < loops.size(); ++i) {
    EXPECT_NE(loops[i], nullptr) << "member " << i << " of CudaLoops";
  }
  const auto obstacle =
      reinterpret_cast<const char* (*)()>(::dlsym(library, "lockstep_cuda_obstacle"));
  ASSERT_NE(obstacle, nullptr);
  const bool is_here = shows_gpus("/dev", std::getenv("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(std::string(obstacle()).empty(), is_here) << obstacle();
  const auto identity =
      reinterpret_cast<bool (*)(int, unsigned char*)>(::dlsym(library, "lockstep_cuda_identity"));
  ASSERT_NE(identity, nullptr);
  unsigned char bytes[16];
  EXPECT_EQ(identity(0, bytes), is_here);
}
#endif

}  // namespace gpus_test
}  // namespace lockstep::train
