// A loss of power at any moment leaves a checkpoint to resume from: the last one whose save
// returned, or a newer one.
#include "power_loss.h"

#include <cstdlib>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/log.h"
#include "comm/threads.h"
#include "saving.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace power_loss_test {

namespace fs = std::filesystem;

/// Salt of the values of a completed save, and the number of operations after which it returned.
struct Returned {
  size_t operations;
  int64_t salt;
};

/// Saves of two ranks with rotation, as in a run; the last save replaces a checkpoint.
std::vector<Returned> record(RecordingDisk& disk, const fs::path& output) {
  std::vector<Returned> returned;
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    SaveOptions options;
    options.disk = &disk;
    options.max_file_bytes = 600;  // splits the tensors into several files
    for (const auto& [step, salt] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 2}, {3, 3}, {4, 4}, {4, 5}}) {
      save_checkpoint(
          checkpoint_folder(output, step),
          share_of(sample_tensors(salt), communicator.rank(), communicator.size()),
          sample_state(salt),
          sample_files(),
          communicator,
          options);
      communicator.barrier();
      if (communicator.rank() == 0) {
        returned.push_back({disk.operations(), salt});
        rotate_checkpoints(output, 1, {}, disk);
      }
      communicator.barrier();
    }
  });
  return returned;
}

class PowerLoss : public testing::TestWithParam<bool> {};

TEST_P(PowerLoss, LeavesTheNewestCheckpointOrTheOneUnderWay) {
  const char* const asked = std::getenv("LOCKSTEP_POWER_LOSSES");
  const int states = asked != nullptr ? std::atoi(asked) : 200;
  set_log_level(LogLevel::kError);
  const TemporaryFolder folder;
  RecordingDisk disk(folder.path());
  disk.can_exchange = GetParam();
  const std::vector<Returned> returned = record(disk, folder.path() / "runs" / "run");
  ASSERT_EQ(returned.size(), 5U);
  std::mt19937_64 random(17);
  auto alone = comm::Communicator::alone();
  int older = 0;
  for (int state = 0; state < states; ++state) {
    const size_t count = returned.front().operations +
                         random() % (disk.operations() - returned.front().operations + 1);
    SCOPED_TRACE(
        fmt::format("state {}, after {} of {} operations", state, count, disk.operations()));
    int64_t newest = 0;
    for (const Returned& each : returned) {
      newest = each.operations <= count ? each.salt : newest;
    }
    const TemporaryFolder left;
    disk.lose_power(count, random, left.path() / "root");
    const fs::path output = left.path() / "root" / "runs" / "run";
    const auto latest = latest_checkpoint(output, alone);
    ASSERT_TRUE(latest) << "no checkpoint is left";
    const auto salt = parse_json(latest->state(), "state.json")["step"].get<int64_t>();
    EXPECT_TRUE(salt == newest || salt == newest + 1) << salt << " instead of " << newest;
    older += salt == newest && count > 0 ? 1 : 0;
    expect_sample(*latest, salt, 0, 1);
    save_sample(output, 9, alone);  // the run can continue
    expect_sample(*latest_checkpoint(output, alone), 9, 0, 1);
    if (testing::Test::HasFailure()) {
      break;
    }
  }
  set_log_level(LogLevel::kInfo);
  EXPECT_GT(older, 0);
}

INSTANTIATE_TEST_SUITE_P(Checkpoint, PowerLoss, testing::Bool(), [](const auto& info) {
  return info.param ? "WithExchange" : "WithoutExchange";
});

}  // namespace power_loss_test
}  // namespace lockstep::checkpoint
