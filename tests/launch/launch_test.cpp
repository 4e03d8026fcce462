// Tests of `lockstep launch` on one machine with real processes.
#include <csignal>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "launch/frontends/compat.h"
#include "launch/helpers.h"
#include "launch/record.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace launch_test {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::part;
using testing::Ran;
using testing::run;

const testing::RegisterPart launcher("launch", [](int argc, char** argv) {
  return record(argc, argv, [](int count, char** words) {
    const Environment environment = current_environment();
    const LaunchRequest request = read_launch({words, words + count}, environment);
    if (!request.answer.empty()) {
      std::fputs(request.answer.c_str(), stdout);
      return 0;
    }
    return run_launch(request);
  });
});

const testing::RegisterPart recorder("recorded", [](int argc, char** argv) {
  return record(argc, argv, [](int, char** words) -> int {
    set_recorded_step(42);
    in_context("reading the corpus", [&] {
      throw Error(
          ErrorKind::kNumeric, std::string("NaN in ") + words[0], "lower the learning rate");
    });
    return 0;
  });
});

Ran launch(std::vector<std::string> arguments) {
  return run(part("launch", std::move(arguments)));
}

std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> result;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      result.push_back(std::filesystem::relative(entry.path(), folder));
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

TEST(Launch, RunsWorkersAndExitsWithOneAsTorchrunDoes) {
  EXPECT_EQ(launch({"--nproc-per-node=2", "--no-python", "true"}).status.shell_code(), 0);
  const Ran failed = launch({"--nproc-per-node=2", "--no-python", "sh", "-c", "exit 5"});
  EXPECT_EQ(failed.status.shell_code(), 1);
  EXPECT_THAT(failed.error_output, HasSubstr("sh FAILED\n----"));
  EXPECT_THAT(
      failed.error_output, HasSubstr("Root Cause (first observed failure):\n[0]:\n  time      : "));
  EXPECT_EQ(
      launch({"--propagate-exit-code", "--no-python", "sh", "-c", "kill -SEGV $$"})
          .status.shell_code(),
      139);
}

TEST(Launch, StartsWorkersThatGetNoFurtherThreeTimes) {
  const auto rounds = [](const std::string& script) {
    return launch({"--max-restarts=5", "--no-python", "sh", "-c", "echo again; " + script});
  };
  const Ran told = rounds("echo 7 0 0 > $LOCKSTEP_STEP_FILE; exit 5");
  EXPECT_EQ(told.output, "again\nagain\nagain\nagain\n");  // the first reached a new step
  EXPECT_EQ(told.status.shell_code(), 1);
  EXPECT_THAT(
      told.error_output,
      HasSubstr("not restarting the workers: 3 rounds in a row made no progress:\n    "
                "rank 0 on "));
  EXPECT_EQ(rounds("echo $LOCKSTEP_ROUND 0 0 > $LOCKSTEP_STEP_FILE; exit 5").output.size(), 36U);
  EXPECT_EQ(
      rounds("exit 5").output.size(), 36U);  // programs that report no steps are always restarted
}

TEST(Launch, WritesTorchrunsLogFolder) {
  const TemporaryFolder folder;
  const Ran ran = launch(
      {"--nproc-per-node=2",
       "--log-dir",
       folder.path().string(),
       "--rdzv-id=job/1",
       "-t",
       "3",
       "--role=trainer",
       "--no-python",
       "sh",
       "-c",
       "echo out $RANK; echo err $RANK >&2"});
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  EXPECT_THAT(ran.output, HasSubstr("[trainer1]:out 1\n"));
  EXPECT_THAT(ran.error_output, HasSubstr("[trainer0]:err 0\n"));
  const auto files = files_below(folder.path());
  ASSERT_EQ(files.size(), 4U);
  for (const auto& file : files) {
    EXPECT_TRUE(std::regex_match(
        file.string(), std::regex("job_1_\\w{6}/attempt_0/[01]/std(out|err)\\.log")))
        << file;
  }
  EXPECT_EQ(read_file(folder.path() / files[3]), "out 1\n");
}

TEST(Launch, RedirectsShowsAndFiltersByRank) {
  const TemporaryFolder folder;
  const Ran ran = launch(
      {"--nproc-per-node=3",
       "--log-dir",
       folder.path().string(),
       "-r",
       "0:1",
       "-t",
       "1:1,2:1",
       "--local-ranks-filter",
       "0,1",
       "--duplicate-stdout-filters",
       "needle",
       "--log-line-prefix-template",
       "<${rank} ${what}>",
       "--no-python",
       "sh",
       "-c",
       "echo needle $RANK; echo hay; echo e$RANK >&2"});
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  EXPECT_EQ(ran.output, "<1 ${what}>needle 1\n<1 ${what}>hay\n");
  EXPECT_THAT(ran.error_output, HasSubstr("e0\n"));
  EXPECT_THAT(ran.error_output, Not(HasSubstr("e2\n")));
  std::string filtered;
  for (const auto& file : files_below(folder.path())) {
    if (file.filename() == "filtered_stdout.log") {
      filtered = read_file(folder.path() / file);
    }
  }
  EXPECT_THAT(filtered, HasSubstr("<1 ${what}>needle 1\n"));
  EXPECT_THAT(filtered, HasSubstr("<2 ${what}>needle 2\n"));
  EXPECT_THAT(filtered, Not(HasSubstr("hay")));
}

TEST(Launch, RestartsAndKeepsTheLogsOfEveryAttempt) {
  const TemporaryFolder folder;
  const Ran ran = launch(
      {"--nproc-per-node=2",
       "--max-restarts=2",
       "--log-dir",
       folder.path().string(),
       "-r",
       "1",
       "--event-log-handler",
       "jsonl:" + (folder.path() / "events.jsonl").string(),
       "--no-python",
       "sh",
       "-c",
       "echo attempt $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; "
       "[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && exit 3; exit 0"});
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  int logs = 0;
  for (const auto& file : files_below(folder.path())) {
    logs += file.filename() == "stdout.log" ? 1 : 0;
  }
  EXPECT_EQ(logs, 6);
  const std::string events = read_file(folder.path() / "events.jsonl");
  EXPECT_EQ(std::count(events.begin(), events.end(), '\n'), 6);
  const Ran gave_up = launch({"--max-restarts=1", "--no-python", "sh", "-c", "echo run; exit 3"});
  EXPECT_EQ(gave_up.output, "run\nrun\n");
  EXPECT_EQ(gave_up.status.shell_code(), 1);
  // Each failure comes more than a second after the previous one.
  const Ran in_a_window = launch(
      {"--max-restarts=1",
       "--restart-window=1",
       "--no-python",
       "sh",
       "-c",
       "echo run; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || { sleep 1.1; exit 3; }"});
  EXPECT_EQ(in_a_window.output, "run\nrun\nrun\n") << in_a_window.error_output;
  EXPECT_EQ(in_a_window.status.shell_code(), 0);
}

TEST(Launch, TellsWhatARecordedWorkerSaid) {
  const TemporaryFolder folder;
  std::vector<std::string> arguments{
      "--nproc-per-node=1",
      "--propagate-exit-code",
      "--log-dir",
      folder.path().string(),
      "--no-python"};
  const std::vector<std::string> worker = part("recorded", {"loss"});
  arguments.insert(arguments.end(), worker.begin(), worker.end());
  const Ran ran =
      run(part("launch", arguments),
          {"TORCHELASTIC_ERROR_FILE=" + (folder.path() / "parent.json").string()});
  EXPECT_EQ(ran.status.shell_code(), 6) << ran.error_output;
  for (const char* text :
       {"traceback : NaN in loss\n",
        "while reading the corpus",
        "step      : 42\n",
        "try       : lower the learning rate\n",
        "/attempt_0/0/error.json\n"}) {
    EXPECT_THAT(ran.error_output, HasSubstr(text));
  }
  EXPECT_THAT(read_file(folder.path() / "parent.json"), HasSubstr("\"errorCode\":6"));
}

TEST(Launch, GivesEveryWorkerOneGpuUnderAVirtualLocalRank) {
  const Ran ran =
      run(part(
              "launch",
              {"--nproc-per-node=2",
               "--virtual-local-rank",
               "--no-python",
               "sh",
               "-c",
               "echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES"}),
          {"CUDA_VISIBLE_DEVICES="});
  EXPECT_THAT(ran.output, HasSubstr("0 0 0\n"));
  EXPECT_THAT(ran.output, HasSubstr("1 0 1\n"));
}

TEST(Launch, EndsOnASignalAndLeavesNothing) {
  const std::string mark = testing::unique_mark();
  const Ran ran = run(
      part(
          "launch",
          {"--nproc-per-node=2",
           "--shutdown-timeout=1",
           "--no-python",
           "sh",
           "-c",
           "export " + mark +
               "; trap '' TERM; (setsid sleep 100 &); echo started; while :; do sleep 1; done"}),
      {},
      "started\nstarted\n",
      [](pid_t pid) { ::kill(pid, SIGTERM); });
  EXPECT_EQ(ran.status.shell_code(), 1);
  EXPECT_LT(ran.seconds, 40);
  EXPECT_EQ(testing::processes_left(mark), 0);
}

TEST(Launch, GoesOnWhereTheLogDiskIsFull) {
  const TemporaryFolder folder;
  const std::string disk = (folder.path() / "disk").string();
  const Ran mounted =
      run({"sh", "-c", "mkdir " + disk + " && mount -t tmpfs -o size=64k none " + disk});
  if (mounted.status.shell_code() != 0) {
    GTEST_SKIP() << "no tmpfs can be mounted here: " << mounted.error_output;
  }
  const Ran ran = launch(
      {"--log-dir",
       disk,
       "-t",
       "3",
       "--no-python",
       "sh",
       "-c",
       "head -c 300000 /dev/zero; echo; echo end; exit 9"});
  run({"umount", disk});
  EXPECT_EQ(ran.status.shell_code(), 1);
  EXPECT_THAT(ran.output, HasSubstr("]:end\n"));
  EXPECT_THAT(
      ran.error_output,
      HasSubstr("No space left on device; logging to it stops, the job continues"));
  EXPECT_THAT(ran.error_output, HasSubstr("exitcode  : 9"));
}

}  // namespace launch_test
}  // namespace lockstep::launch
