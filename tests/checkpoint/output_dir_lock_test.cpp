// Locking of output folders: one run at a time.
#include "checkpoint/output_dir_lock.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <span>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "comm/threads.h"
#include "expect_error.h"
#include "saving.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace output_hold_test {

namespace fs = std::filesystem;

class Hold : public testing::Test {
 protected:
  Hold() { set_log_level(LogLevel::kError); }
  ~Hold() override { set_log_level(LogLevel::kInfo); }

  std::unique_ptr<OutputDirLock> take(const RunIdentity& run) {
    return OutputDirLock::take(folder_.path(), run, alone_);
  }
  void save(int64_t step, const OutputDirLock* hold) {
    save_sample(folder_.path(), step, alone_, {.hold = hold});
  }
  bool has(const std::string& name) { return fs::exists(folder_.path() / name); }

  const TemporaryFolder folder_;
  comm::Communicator alone_ = comm::Communicator::alone();
};

TEST_F(Hold, ASecondRunIsRefusedWithTheNameOfTheFirst) {
  auto first = take({"one", 3});
  EXPECT_TRUE(is_held(folder_.path()));
  for (const RunIdentity& run : {RunIdentity{"two", 5}, RunIdentity{}, RunIdentity{"one", 3}}) {
    expect_error(
        ErrorKind::kEnvironment,
        {fmt::format("process {} on ", ::getpid()), "job one, round 3", "output_dir"},
        [&] { take(run); });
  }
  save(1, first.get());
  first.reset();
  EXPECT_FALSE(is_held(folder_.path()));
  EXPECT_NE(
      read_file(folder_.path() / OutputDirLock::kFile).find("\"released\":true"),
      std::string::npos);
  EXPECT_NE(take({}), nullptr);
}

TEST_F(Hold, ALinkOfItsNameIsNotFollowed) {
  const fs::path other = folder_.path() / "other";
  write_file_atomically(other, "precious");
  fs::create_symlink(other, folder_.path() / OutputDirLock::kFile);
  expect_error(ErrorKind::kEnvironment, {OutputDirLock::kFile}, [&] { take({"one", 0}); });
  EXPECT_EQ(read_file(other), "precious");
}

TEST_F(Hold, AllRanksAreRefusedAndHaveOneToken) {
  comm::run_ranks(3, [&](comm::Communicator& communicator) {
    const auto hold = OutputDirLock::take(folder_.path(), {"job/.. 1", 2}, communicator);
    EXPECT_EQ(hold->token(), "job1-0-2");
    expect_error(ErrorKind::kEnvironment, {"in use by"}, [&] {
      OutputDirLock::take(folder_.path(), {}, communicator);
    });
  });
}

TEST_F(Hold, ThatOfAKilledProcessIsFree) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto hold = take({"killed", 0});
    fs::create_directories(saving_folder(folder_.path() / "checkpoint-1", hold->token()));
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  save(5, nullptr);  // saved by a program without a lock; the locked run's unfinished save remains
  EXPECT_TRUE(has("checkpoint-1.killed-0-0.saving"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto next = take({"next", 0});
  save(2, next.get());
  EXPECT_TRUE(has("checkpoint-2"));
  EXPECT_FALSE(has("checkpoint-1.killed-0-0.saving"));
}

TEST_F(Hold, ALaterRoundTakesTheFolderAndTheEarlierOneCannotCommit) {
  const auto earlier = take({"job", 1});
  save(1, earlier.get());
  const auto later = take({"job", 2});
  save(2, later.get());
  expect_error(ErrorKind::kCheckpoint, {"was taken by process"}, [&] { save(3, earlier.get()); });
  EXPECT_FALSE(has("checkpoint-3"));
  EXPECT_FALSE(has("checkpoint-3.job-0-1.saving"));
  EXPECT_TRUE(has("checkpoint-2"));
  later->check();
}

TEST_F(Hold, AnEarlierRoundCannotCommitAfterItsSuccessorHasEnded) {
  const auto earlier = take({"job", 1});
  save(1, earlier.get());
  auto later = take({"job", 2});
  save(2, later.get());
  later.reset();
  expect_error(ErrorKind::kCheckpoint, {"was taken by process"}, [&] { save(3, earlier.get()); });
  EXPECT_FALSE(has("checkpoint-3"));
  expect_error(ErrorKind::kCheckpoint, {"was taken by process"}, [&] {
    save_model(folder_.path(), {}, {{"config.json", "{}"}}, alone_, {.hold = earlier.get()});
  });
  EXPECT_FALSE(has("config.json"));
  expect_error(ErrorKind::kEnvironment, {"was taken by a later round of this job"}, [&] {
    take({"job", 1});
  });
  const auto next = take({"job", 3});
  expect_error(ErrorKind::kCheckpoint, {"was taken by process"}, [&] { save(3, earlier.get()); });
  save(3, next.get());
}

TEST_F(Hold, AJobOfTheSameNameIsAnotherRun) {
  const RunIdentity run{"100", 0, 0, /*is_unique=*/false};
  auto first = take(run);
  expect_error(ErrorKind::kEnvironment, {"in use by another run", "job 100, round 0"}, [&] {
    take({"100", 1, 0, /*is_unique=*/false});
  });
  save(1, first.get());
  const std::string token = first->token();
  first.reset();
  EXPECT_NE(take({"100", 1, 0, /*is_unique=*/false}), nullptr);
  EXPECT_NE(take(run)->token(), token);
}

TEST_F(Hold, AProcessThatHasEndedLosesTheFolderAlthoughAChildHasItsLock) {
  int ready[2], stay[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(stay), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto hold = take({"ended", 0});
    if (::fork() == 0) {  // shares the lock, and ends with this test
      ::close(stay[1]);
      char byte = 0;
      [[maybe_unused]] const ssize_t count = ::read(stay[0], &byte, 1);
      ::_exit(0);
    }
    [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(is_held(folder_.path()));
  const auto next = take({"next", 0});
  next->check();
  for (const int descriptor : {ready[0], ready[1], stay[0], stay[1]}) {
    ::close(descriptor);
  }
}

TEST_F(Hold, ARunOnAnotherMachineThatTouchesItsLockIsAlive) {
  const auto first = take({"one", 0});
  const fs::path file = folder_.path() / OutputDirLock::kFile;
  std::string text = read_file(file);
  const size_t at = text.find("\"processes\":\"") + 13;
  text[at] = text[at] == 'x' ? 'y' : 'x';  // another kernel
  File(file, File::Mode::kWrite).write_at(0, std::as_bytes(std::span(text)));
  std::atomic<bool> done = false;
  std::thread touching([&] {
    for (int64_t i = 0; !done; ++i) {
      fs::last_write_time(file, fs::file_time_type(std::chrono::seconds(i)));
    }
  });
  expect_error(ErrorKind::kEnvironment, {"in use by another run"}, [&] { take({"two", 0}); });
  done = true;
  touching.join();
  first->check();
}

TEST_F(Hold, ARunWhoseLockFileIsGoneCannotCommit) {
  const auto hold = take({"job", 0});
  fs::remove(folder_.path() / OutputDirLock::kFile);
  expect_error(ErrorKind::kCheckpoint, {"cannot be read"}, [&] { save(1, hold.get()); });
}

// An earlier coordinator that was replaced may continue to count its rounds; all of them are older
// than the first round of the next coordinator.
TEST_F(Hold, TheRoundsOfAnEarlierHostDoNotTakeTheFolderBack) {
  const auto earlier = take({"job", 4, 0});
  const auto later = take({"job", 2, 1});
  expect_error(ErrorKind::kEnvironment, {"later round of this job", "round 2"}, [&] {
    take({"job", 7, 0});
  });
  later->check();
  save(1, later.get());
  expect_error(ErrorKind::kCheckpoint, {"was taken by process"}, [&] { save(2, earlier.get()); });
}

/// A later round takes the folder after the save has begun to write.
class TakenMeanwhile : public Disk {
 public:
  explicit TakenMeanwhile(std::function<void()> take) : take_(std::move(take)) {}
  void sync_folder(const fs::path& folder) override {
    if (take_) {
      std::exchange(take_, nullptr)();
    }
    Disk::sync_folder(folder);
  }

 private:
  std::function<void()> take_;
};

TEST_F(Hold, ASaveThatLosesTheFolderIsNotCommitted) {
  const auto earlier = take({"job", 1});
  std::unique_ptr<OutputDirLock> later;
  TakenMeanwhile disk([&] {
    later = take({"job", 2});
    save(1, later.get());
  });
  expect_error(ErrorKind::kCheckpoint, {"was taken by"}, [&] {
    save_sample(folder_.path(), 1, alone_, {.disk = &disk, .hold = earlier.get()});
  });
  expect_sample(*latest_checkpoint(folder_.path(), alone_), 1, 0, 1);
}

}  // namespace output_hold_test
}  // namespace lockstep::checkpoint
