// Tests of unchanged Python scripts written for torchrun, with the torch package of the test
// environment.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "launch/helpers.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace python_test {

using ::testing::HasSubstr;
using testing::Ran;

const std::string kPython = std::string(LOCKSTEP_SOURCE_DIR) + "/.deps/python/bin/python";

// Data-parallel training as in torch's tutorials, with @record; on request it fails in the first
// attempt.
constexpr const char* kScript = R"(
import os, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4, generator=generator)).pow(2).mean().backward()
        optimizer.step()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if "--fail" in sys.argv and dist.get_rank() == 1 and attempt == 0:
        raise RuntimeError("the first attempt fails")
    weight = model.module.weight.sum().item()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} attempt {attempt} weight {weight:.6f}")
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
)";

class Python : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kPython)) {
      GTEST_SKIP() << "no Python environment in .deps/python";
    }
    write_file_atomically(folder_.path() / "ddp.py", kScript);
  }
  Ran launch(std::vector<std::string> arguments) {
    return testing::run(
        testing::part("launch", std::move(arguments)),
        {"PYTHON_EXEC=" + kPython, "HOME=" + folder_.path().string(), "CUDA_VISIBLE_DEVICES="});
  }
  std::string script() const { return (folder_.path() / "ddp.py").string(); }
  TemporaryFolder folder_;
};

TEST_F(Python, TrainsDataParallelAndRestarts) {
  const Ran ran = launch({"--nproc-per-node=2", "--max-restarts=1", script(), "--fail"});
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  EXPECT_THAT(ran.output, HasSubstr("rank 0 of 2 attempt 1 weight "));
  EXPECT_THAT(ran.output, HasSubstr("rank 1 of 2 attempt 1 weight "));
  EXPECT_THAT(ran.error_output, HasSubstr("ddp.py FAILED"));
  EXPECT_THAT(ran.error_output, HasSubstr("RuntimeError: the first attempt fails"));
  EXPECT_THAT(ran.error_output, HasSubstr("/attempt_0/1/error.json"));
}

TEST_F(Python, IsEndedByTorchelasticsFileTimer) {
  write_file_atomically(
      folder_.path() / "late.py",
      "import os, time\n"
      "import torch.distributed.elastic.timer as timer\n"
      "timer.configure(timer.FileTimerClient(os.environ['TORCHELASTIC_TIMER_FILE']))\n"
      "with timer.expires(after=60):\n"
      "    print('in time')\n"
      "with timer.expires(after=1, scope='an epoch'):\n"
      "    time.sleep(100)\n");
  const Ran ran = testing::run(
      testing::part("launch", {(folder_.path() / "late.py").string()}),
      {"PYTHON_EXEC=" + kPython, "TORCHELASTIC_ENABLE_FILE_TIMER=1", "CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(ran.status.shell_code(), 1);
  EXPECT_THAT(ran.output, HasSubstr("in time\n"));
  EXPECT_THAT(ran.error_output, HasSubstr("did not finish 'an epoch' in time"));
  EXPECT_THAT(ran.error_output, HasSubstr("exitcode  : -9"));
}

TEST_F(Python, RunsAsAccelerateAndDeepspeedWouldRunIt) {
  const Ran accelerate = launch({"--num_processes=2", "--cpu", "--mixed_precision=no", script()});
  EXPECT_EQ(accelerate.status.shell_code(), 0) << accelerate.error_output;
  EXPECT_THAT(accelerate.output, HasSubstr("rank 1 of 2 attempt 0 weight "));
  const Ran deepspeed = launch({"--num_gpus=1", script(), "--deepspeed"});
  EXPECT_EQ(deepspeed.status.shell_code(), 0) << deepspeed.error_output;
  EXPECT_THAT(deepspeed.output, HasSubstr("rank 0 of 1 attempt 0 weight "));
}

}  // namespace python_test
}  // namespace lockstep::launch
