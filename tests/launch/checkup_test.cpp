// Tests of the checks of `lockstep doctor` and of device lists.
#include "launch/doctor/checkup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/plan/devices.h"
#include "launch/workers/worker_environment.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace checkup_test {

using ::testing::HasSubstr;
using State = Finding::State;

TEST(Checkup, ExaminesThisMachine) {
  const TemporaryFolder folder;
  const std::vector<Finding> findings = examine_machine(current_environment(), folder.path());
  const std::string table = table_of(findings);
  for (const char* row :
       {"machine ", "GPUs ", "shared memory ", "limits ", "host name ", "ports ", "disk "}) {
    EXPECT_THAT(table, HasSubstr(row));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Checkup, TellsWhatIsBrokenAndHowToMendIt) {
  EXPECT_EQ(judge_shared_memory(1e6).state, State::kBroken);
  EXPECT_EQ(judge_shared_memory(5e8).state, State::kWarning);
  EXPECT_EQ(judge_open_files(100).state, State::kBroken);
  EXPECT_EQ(judge_disk("/nonexistent").state, State::kBroken);
  EXPECT_EQ(judge_bandwidth(2, 1e6, 1e9).state, State::kBroken);
  EXPECT_EQ(judge_bandwidth(2, 8e8, 1e9).state, State::kGood);
  EXPECT_EQ(judge_clocks(3, 2).state, State::kWarning);
  EXPECT_EQ(exit_code_of({judge_disk("/nonexistent")}), 3);
  EXPECT_EQ(exit_code_of({judge_clocks(3, 2)}), 0);
  EXPECT_THAT(table_of({judge_shared_memory(1e6)}), HasSubstr("try: docker run --shm-size=8g"));
}

TEST(Devices, ReadListsAsTheKernelAndCudaDo) {
  EXPECT_EQ(parse_cpu_list("0-2,5"), (std::vector<int>{0, 1, 2, 5}));
  for (const char* bad : {"x", "2-1", "-", "1-", "0-99999999"}) {
    EXPECT_TRUE(parse_cpu_list(bad).empty()) << bad;
  }
  EXPECT_FALSE(visible_devices({}).has_value());
  EXPECT_TRUE(visible_devices({{"CUDA_VISIBLE_DEVICES", ""}})->empty());
  EXPECT_EQ(
      visible_devices({{"CUDA_VISIBLE_DEVICES", "3, 1,-1,0"}}),
      (std::vector<std::string>{"3", "1"}));
  EXPECT_TRUE(usable_gpus({{"CUDA_VISIBLE_DEVICES", ""}}).empty());
}

}  // namespace checkup_test
}  // namespace lockstep::launch
