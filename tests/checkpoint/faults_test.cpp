// After a failed or killed save at any point, the disk always contains a complete checkpoint.
#include <csignal>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "comm/threads.h"
#include "expect_error.h"
#include "saving.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace faults_test {

namespace fs = std::filesystem;
using Fault = FaultyDisk::Fault;

/// A checkpoint of step 1, and a second save that is interrupted.
struct Scenario {
  bool replaces;      // checkpoint-2 exists already, with values of 20
  bool can_exchange;  // the file system can exchange folders atomically
};

void save_again(const fs::path& output, comm::Communicator& communicator, Disk& disk) {
  SaveOptions options;
  options.disk = &disk;
  options.max_file_bytes = 600;  // splits the tensors into several files
  save_checkpoint(
      output / "checkpoint-2",
      share_of(sample_tensors(2), communicator.rank(), communicator.size()),
      sample_state(2),
      sample_files(),
      communicator,
      options);
}

void prepare(const fs::path& output, const Scenario& scenario) {
  auto alone = comm::Communicator::alone();
  save_sample(output, 1, alone);
  if (scenario.replaces) {
    save_checkpoint(
        output / "checkpoint-2", sample_tensors(20), sample_state(20), sample_files(), alone);
  }
}

/// Expects that the newest checkpoint is complete and is either the old one or the one being saved;
/// returns the salt of its values.
int64_t check_latest(const fs::path& output, const Scenario& scenario) {
  auto alone = comm::Communicator::alone();
  const auto latest = latest_checkpoint(output, alone);
  if (!latest) {
    ADD_FAILURE() << "no checkpoint";
    return -1;
  }
  const auto salt = parse_json(latest->state(), "state.json")["step"].get<int64_t>();
  EXPECT_TRUE(salt == 2 || salt == (scenario.replaces ? 20 : 1)) << salt;
  expect_sample(*latest, salt, 0, 1);
  return salt;
}

/// Expects that the next save succeeds and removes everything of the failed one.
void check_next_save(const fs::path& output) {
  auto alone = comm::Communicator::alone();
  save_sample(output, 3, alone);
  expect_sample(*latest_checkpoint(output, alone), 3, 0, 1);
  for (const auto& entry : fs::directory_iterator(output)) {
    EXPECT_TRUE(checkpoint_step(entry.path())) << entry.path();
    EXPECT_NO_THROW(Checkpoint::open(entry.path(), alone));
  }
}

class FaultAtEveryOperation : public testing::TestWithParam<Scenario> {
 protected:
  FaultAtEveryOperation() { set_log_level(LogLevel::kError); }
  ~FaultAtEveryOperation() override { set_log_level(LogLevel::kInfo); }

  int64_t operations(int ranks) {
    const TemporaryFolder folder;
    prepare(folder.path(), GetParam());
    FaultyDisk disk(Fault::kNone, 0);
    disk.can_exchange = GetParam().can_exchange;
    comm::run_ranks(ranks, [&](comm::Communicator& communicator) {
      save_again(folder.path(), communicator, disk);
    });
    EXPECT_EQ(check_latest(folder.path(), GetParam()), 2);
    return disk.operations();
  }
};

TEST_P(FaultAtEveryOperation, LeavesAWholeCheckpoint) {
  const int64_t operations = this->operations(1);
  EXPECT_GT(operations, 30);
  for (const Fault fault : {Fault::kNoSpace, Fault::kIoError, Fault::kKill}) {
    int64_t failures = 0;
    for (int64_t at = 0; at < operations; ++at) {
      SCOPED_TRACE(fmt::format("fault {} at operation {}", static_cast<int>(fault), at));
      const TemporaryFolder folder;
      prepare(folder.path(), GetParam());
      FaultyDisk disk(fault, at);
      disk.can_exchange = GetParam().can_exchange;
      auto alone = comm::Communicator::alone();
      bool failed = true;
      try {
        save_again(folder.path(), alone, disk);
        failed = false;
      } catch (const Killed&) {
        EXPECT_EQ(fault, Fault::kKill);
      } catch (const Error& error) {
        EXPECT_EQ(exit_code(error.kind()), 4) << error.what();
        const std::string reason =
            fault == Fault::kNoSpace ? "No space left on device" : "Input/output error";
        EXPECT_NE(error.message().find(reason), std::string::npos) << error.what();
        EXPECT_FALSE(fs::exists(folder.path() / "checkpoint-2.saving"));
      }
      failures += failed ? 1 : 0;
      const int64_t found = check_latest(folder.path(), GetParam());
      if (!failed) {
        EXPECT_EQ(found, 2);
      }
      check_next_save(folder.path());
    }
    EXPECT_GE(
        failures, operations - 3);  // a failed removal of the replaced checkpoint is only a warning
  }
}

TEST_P(FaultAtEveryOperation, OnAnyRankFailsThemAll) {
  const int64_t operations = this->operations(3);
  const TemporaryFolder folder;
  comm::run_ranks(3, [&](comm::Communicator& communicator) {
    static FaultyDisk* disk = nullptr;
    for (int64_t at = 0; at < operations; at += 3) {
      const fs::path output = folder.path() / std::to_string(at);
      if (communicator.rank() == 0) {
        prepare(output, GetParam());
        disk = new FaultyDisk(Fault::kNoSpace, at);
        disk->can_exchange = GetParam().can_exchange;
      }
      communicator.barrier();
      bool failed = true;
      try {
        save_again(output, communicator, *disk);
        failed = false;
      } catch (const Error& error) {
        EXPECT_NE(error.message().find("rank "), std::string::npos) << error.what();
        EXPECT_NE(error.message().find("No space left"), std::string::npos) << error.what();
      }
      const auto outcomes = comm::gather_strings(communicator, failed ? "failed" : "saved");
      EXPECT_EQ(std::set<std::string>(outcomes.begin(), outcomes.end()).size(), 1U);
      if (communicator.rank() == 0) {
        const int64_t found = check_latest(output, GetParam());
        EXPECT_TRUE(failed || found == 2);
        delete disk;
      }
      communicator.barrier();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Checkpoint,
    FaultAtEveryOperation,
    testing::Values(Scenario{false, true}, Scenario{true, true}, Scenario{true, false}),
    [](const auto& info) {
      return std::string(info.param.replaces ? "Replacing" : "New") +
             (info.param.can_exchange ? "" : "WithoutExchange");
    });

TEST(Faults, ARankThatDiesInASaveEndsTheOthersToo) {
  for (const int64_t at : {3, 12, 25, 31}) {
    const TemporaryFolder folder;
    prepare(folder.path(), {false, true});
    FaultyDisk disk(Fault::kKill, at);
    std::atomic<int> killed = 0, lost = 0;
    try {
      comm::run_ranks(3, [&](comm::Communicator& communicator) {
        try {
          save_again(folder.path(), communicator, disk);
        } catch (const Killed&) {
          ++killed;
          throw;
        } catch (const Error& error) {
          EXPECT_EQ(exit_code(error.kind()), 7) << error.what();
          ++lost;
          throw;
        }
      });
    } catch (const Killed&) {
    } catch (const Error&) {
    }
    EXPECT_GE(killed, 1) << at;
    EXPECT_EQ(killed + lost, 3) << at;
    EXPECT_EQ(check_latest(folder.path(), {false, true}), 1);
    check_next_save(folder.path());
  }
}

TEST(Faults, AFailedRotationIsAWarning) {
  const TemporaryFolder folder;
  auto alone = comm::Communicator::alone();
  for (int64_t at = 0; at < 6; ++at) {
    for (const int64_t step : {1, 2, 3}) {
      save_sample(folder.path(), step, alone);
    }
    FaultyDisk disk(Fault::kIoError, at);
    testing::internal::CaptureStderr();
    rotate_checkpoints(folder.path(), 1, {}, disk);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("not removed: "), std::string::npos);
    expect_sample(*latest_checkpoint(folder.path(), alone), 3, 0, 1);
  }
}

/// A memory file system of `size` bytes, mounted for the object's lifetime.
class SmallDisk {
 public:
  explicit SmallDisk(int64_t size) {
    mounted_ = ::mount(
                   "lockstep",
                   folder_.path().c_str(),
                   "tmpfs",
                   MS_NOSUID | MS_NODEV,
                   fmt::format("size={}", size).c_str()) == 0;
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) {
      ::umount2(folder_.path().c_str(), MNT_DETACH);
    }
  }
  bool mounted() const { return mounted_; }
  const fs::path& path() const { return folder_.path(); }

 private:
  const TemporaryFolder folder_;
  bool mounted_ = false;
};

TEST(Faults, AFullDiskIsToldAtOnceAndTheOlderCheckpointLoads) {
  const SmallDisk disk(3 << 20);
  if (!disk.mounted()) {
    GTEST_SKIP() << "this user may not mount a tmpfs";
  }
  const auto tensors = [](double value) {
    return std::vector<Piece>{
        {"model", "a", at::kFloat, {200000}, 0, at::full({200000}, value)},
        {"optimizer", "a.exp_avg", at::kFloat, {200000}, 0, at::full({200000}, value)}};
  };
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    const auto save = [&](int64_t step) {
      save_checkpoint(
          checkpoint_folder(disk.path(), step),
          share_of(tensors(static_cast<double>(step)), communicator.rank(), 2),
          "{}",
          {},
          communicator);
    };
    save(1);
    expect_error(
        ErrorKind::kCheckpoint,
        {"rank 0: cannot reserve",
         "optimizer-00001-of-00001.safetensors",
         "No space left on device",
         "free some space",
         "checkpoint-2"},
        [&] { save(2); });
    const auto latest = latest_checkpoint(disk.path(), communicator);
    ASSERT_TRUE(latest);
    EXPECT_TRUE(latest->group("optimizer").read_whole("a.exp_avg").equal(at::full({200000}, 1.0F)));
    EXPECT_FALSE(fs::exists(disk.path() / "checkpoint-2.saving"));
  });
}

/// Saves checkpoints of increasing steps, with a limit of two, until it is killed. Writes the last
/// committed step to `committed`.
[[noreturn]] void save_for_ever(
    const fs::path& output, int ranks, std::atomic<int64_t>* committed) {
  set_log_level(LogLevel::kError);
  try {
    comm::run_ranks(ranks, [&](comm::Communicator& communicator) {
      for (int64_t step = committed->load() + 1;; ++step) {
        save_sample(output, step, communicator);
        communicator.barrier();
        if (communicator.rank() == 0) {
          committed->store(step);
          rotate_checkpoints(output, 2);
        }
      }
    });
  } catch (const std::exception& error) {
    log_error("a save failed: {}", error.what());
  }
  ::_exit(1);
}

TEST(Faults, AProcessKilledAtAnyTimeLosesNoCommittedCheckpoint) {
  const char* const count = std::getenv("LOCKSTEP_KILLS");
  const int kills = count != nullptr ? std::atoi(count) : 30;
  const TemporaryFolder folder;
  void* const shared = ::mmap(
      nullptr,
      sizeof(std::atomic<int64_t>),
      PROT_READ | PROT_WRITE,
      MAP_SHARED | MAP_ANONYMOUS,
      -1,
      0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const committed = new (shared) std::atomic<int64_t>(0);
  auto alone = comm::Communicator::alone();
  const auto start = std::chrono::steady_clock::now();
  save_sample(folder.path(), 0, alone);
  // A child runs for up to a few saves on this disk, plus the startup time of two ranks.
  const auto save_time = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  const uint64_t one_rank = static_cast<uint64_t>(4 * save_time.count() + 5000);
  const uint64_t two_ranks = one_rank + 50000;
  std::mt19937_64 random(std::random_device{}());
  int in_the_middle = 0;
  // The time at which a kill interrupts a save depends on the machine, so kills are repeated up to
  // a limit.
  const auto has_met_enough = [&] {
    return in_the_middle > kills / 10 && committed->load() > kills / 10;
  };
  for (int kill = 0; kill < kills || (kill < 20 * kills && !has_met_enough()); ++kill) {
    const int ranks = kill % 3 == 2 ? 2 : 1;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      save_for_ever(folder.path(), ranks, committed);
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(random() % (ranks == 1 ? one_rank : two_ranks)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      in_the_middle += checkpoint_step(entry.path()) ? 0 : 1;
    }
    const auto latest = latest_checkpoint(folder.path(), alone);
    ASSERT_TRUE(latest);
    const int64_t step = *checkpoint_step(latest->folder());
    // The newest checkpoint is the last one recorded as committed, or one whose commit was not yet
    // recorded.
    EXPECT_TRUE(step == committed->load() || step == committed->load() + 1)
        << step << " after " << committed->load();
    expect_sample(*latest, step, 0, 1);
    committed->store(step);
  }
  RecordProperty("in_the_middle_of_a_save", in_the_middle);
  EXPECT_TRUE(has_met_enough()) << in_the_middle << " in the middle of a save, "
                                << committed->load() << " saves";
  ::munmap(shared, sizeof(std::atomic<int64_t>));
}

}  // namespace faults_test
}  // namespace lockstep::checkpoint
