// Tests of optimizer offload and asynchronous files.
#include <numeric>

#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/offload/offloaded_optimizer.h"
#include "parallel/offload/uring.h"
#include "parallel/training.h"
#include "temporary_folder.h"

namespace lockstep::parallel {
namespace offload_test {

using namespace testing;

TEST(AsyncFile, BringsBackWhatWasWrittenByEitherEngine) {
  const TemporaryFolder folder;
  for (const AsyncFile::Engine engine : {AsyncFile::Engine::kThreads, AsyncFile::Engine::kUring}) {
    if (engine == AsyncFile::Engine::kUring && !Uring::is_allowed()) {
      continue;  // without io_uring, the threads are tested
    }
    const auto file = AsyncFile::create(folder.path(), engine);
    EXPECT_EQ(file->engine(), engine);
    constexpr size_t kParts = 200, kBytes = 40'001;  // more than an io_uring queue can hold
    std::vector<std::vector<std::byte>> parts(kParts, std::vector<std::byte>(kBytes));
    std::vector<AsyncFile::Ticket> tickets;
    for (size_t i = 0; i < kParts; ++i) {
      parts[i].assign(kBytes, static_cast<std::byte>(i));
      tickets.push_back(file->write(i * kBytes, parts[i]));
    }
    for (const auto ticket : tickets) {
      file->wait(ticket);
    }
    tickets.clear();
    std::vector<std::vector<std::byte>> read(kParts, std::vector<std::byte>(kBytes));
    for (size_t i = 0; i < kParts; ++i) {
      tickets.push_back(file->read(i * kBytes, read[i]));
    }
    for (size_t i = kParts; i-- > 0;) {  // in reverse order
      file->wait(tickets[i]);
      EXPECT_EQ(read[i], parts[i]);
    }
    std::vector<std::byte> beyond(10);
    EXPECT_THROW(file->wait(file->read(kParts * kBytes - 5, beyond)), Error);
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));  // the file has no name
  }
}

TEST(AsyncFile, NamesAFolderThatCannotBeWritten) {
  try {
    AsyncFile::create("/proc/nothing");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kEnvironment);
    EXPECT_NE(error.message().find("/proc/nothing"), std::string::npos) << error.what();
  }
}

TEST(Offload, GivesTheSameResultsAndGoesOnFromAnotherPlan) {
  const TemporaryFolder folder;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const char* optim : {"adamw", "adamw_8bit", "adafactor"}) {
      for (const auto& [stage, ranks] : std::vector<std::pair<int, int>>{{0, 1}, {1, 2}, {3, 3}}) {
        TrainingRun run{tied_config(), small_plan(stage), ranks, type, 4};
        run.plan.optimizer.optim = optim;
        const Outcome kept = train(run);
        for (const OffloadDevice device : {OffloadDevice::kCpu, OffloadDevice::kNvme}) {
          TrainingRun offloaded = run;
          offloaded.plan.offload_optimizer = {device, folder.path()};
          offloaded.plan.offload_parameters = stage == 3;
          if (stage == 3 && device == OffloadDevice::kNvme) {
            offloaded.plan.parameter_folder = folder.path();
          }
          const Outcome other = train(offloaded);
          EXPECT_EQ(other.losses, kept.losses) << optim << " in stage " << stage;
          offloaded.first_step = 4;
          TrainingRun plain = run;
          plain.first_step = 4;
          EXPECT_EQ(train(offloaded, kept.state).losses, train(plain, other.state).losses) << optim;
        }
      }
    }
  }
}

TEST(Offload, KeepsStateInFilesBetweenUpdates) {
  const TemporaryFolder folder;
  comm::Communicator alone = comm::Communicator::alone();
  TrainingRun run{.plan = small_plan(1), .type = at::kBFloat16};
  const auto bytes_after_a_step = [&](OffloadDevice device) {
    run.plan.offload_optimizer = {device, folder.path()};
    const auto model = make_parallel(run, alone);
    run_step(*model, run, alone, 0);
    model->optimizer_step(1e-3);
    return model->offloaded_optimizer().bytes_in_memory();
  };
  EXPECT_GT(bytes_after_a_step(OffloadDevice::kCpu), 12 * 14'000);
  EXPECT_EQ(bytes_after_a_step(OffloadDevice::kNvme), 0);
}

TEST(Offload, KeepsShardsInFilesBetweenTheirUses) {
  const TemporaryFolder folder;
  TrainingRun run{.plan = small_plan(3), .ranks = 2};
  run.plan.offload_parameters = true;
  run.plan.parameter_folder = folder.path();
  comm::run_ranks(2, [&](comm::Communicator& group) {
    const auto model = make_parallel(run, group);
    const auto& gathers = model->data_parallel().gathers();
    EXPECT_EQ(gathers.live_bytes(), 0);
    run_step(*model, run, group, 0);
    model->optimizer_step(1e-3);
    EXPECT_EQ(gathers.live_bytes(), 0);
    int64_t elements = 0;
    model->visit_state([&](const StateSlice& slice) {
      if (slice.file_group == "model") {
        EXPECT_TRUE(slice.transient);
        EXPECT_TRUE(slice.data.isfinite().all().item<bool>());
        elements += slice.data.numel();
      }
    });
    EXPECT_GT(elements, 0);
    EXPECT_EQ(gathers.live_bytes(), 0);
  });
}

}  // namespace offload_test
}  // namespace lockstep::parallel
