// Tests of the single-machine supervisor with real worker processes.
#include "launch/workers/supervisor.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/format.h"
#include "launch/helpers.h"
#include "launch/system/process.h"
#include "launch/workers/error_folder.h"
#include "launch/workers/worker_environment.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace supervisor_test {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Ran;
using testing::supervise_script;

TEST(Supervisor, GivesEveryWorkerItsPlace) {
  const Ran ran = supervise_script(
      3,
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $ROLE_NAME $MASTER_ADDR "
      "$TORCHELASTIC_USE_AGENT_STORE $TORCHELASTIC_RESTART_COUNT; test -n \"$MASTER_PORT\" && "
      "test -n \"$OMP_NUM_THREADS\" && test -n \"$TORCHELASTIC_ERROR_FILE\"");
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  for (const char* line :
       {"0 0 3 3 0 default 127.0.0.1 True 0\n",
        "1 1 3 3 0 default 127.0.0.1 True 0\n",
        "2 2 3 3 0 default 127.0.0.1 True 0\n"}) {
    EXPECT_THAT(ran.output, HasSubstr(line));
  }
  EXPECT_LT(ran.seconds, 40);
}

TEST(Supervisor, ThreadsThatAreMoreThanTheProcessorsTakeTurns) {
  const std::string many = std::to_string(usable_cpus() + 1);
  const auto shared = [](Environment environment, int workers) {
    share_cores(environment, workers);
    return environment;
  };
  EXPECT_EQ(shared({{"OMP_NUM_THREADS", many}}, 1).at("OMP_WAIT_POLICY"), "passive");
  const Environment chosen{{"OMP_NUM_THREADS", many}, {"OMP_WAIT_POLICY", "active"}};
  EXPECT_EQ(shared(chosen, 1), chosen);
  const Environment one{{"OMP_NUM_THREADS", "1"}};
  EXPECT_EQ(shared(one, 2 * usable_cpus()), one);
  const Environment share{{"OMP_NUM_THREADS", std::to_string(std::max(1, usable_cores() / 2))}};
  EXPECT_EQ(shared({}, 2), share);
}

// Prints the variables, descriptors and signals of a copy of a supervising process.
int look_around() {
  const auto is_open = [](const char* name) {
    return ::fcntl(std::stoi(std::getenv(name)), F_GETFD) >= 0 ? "open" : "closed";
  };
  sigset_t blocked;
  ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
  std::printf(
      "rank %s: %s and %s, %s\n",
      std::getenv("RANK"),
      is_open("KEPT"),
      is_open("OURS"),
      ::sigismember(&blocked, SIGTERM) != 0 ? "is deaf" : "hears");
  std::fflush(stdout);
  return std::getenv("RANK") == std::string("1") ? 6 : 0;
}

const testing::RegisterPart copies("copies", [](int, char**) {
  SupervisorOptions options;
  options.workers = 2;
  options.body = look_around;
  options.environment = {
      {"KEPT", std::to_string(::open("/dev/null", O_RDONLY))},
      {"OURS", std::to_string(::open("/dev/null", O_RDONLY | O_CLOEXEC))}};
  options.name = "copies";
  std::printf("once\n");  // is buffered when the workers are forked
  return supervise(options);
});

TEST(Supervisor, MakesWorkersOfCopiesOfItself) {
  const Ran ran = testing::run(testing::part("copies"));
  EXPECT_EQ(ran.status.shell_code(), 6) << ran.error_output;
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(ran.output, HasSubstr(fmt::format("rank {}: open and closed, hears", rank)));
  }
  EXPECT_EQ(ran.output.find("once"), ran.output.rfind("once")) << ran.output;
  EXPECT_THAT(ran.error_output, HasSubstr("rank      : 1"));
}

TEST(Supervisor, NamesTheWorkerThatFailsAndPassesItsCodeOn) {
  const Ran ran = supervise_script(
      3, "if [ $RANK = 1 ]; then echo 'the last words' >&2; exit 4; fi; exec sleep 60");
  EXPECT_EQ(ran.status.shell_code(), 4);
  EXPECT_LT(ran.seconds, 40);
  EXPECT_THAT(ran.error_output, HasSubstr("sh FAILED"));
  EXPECT_THAT(ran.error_output, HasSubstr("rank      : 1 (local_rank: 1)"));
  EXPECT_THAT(ran.error_output, HasSubstr("exitcode  : 4 (pid: "));
  EXPECT_THAT(ran.error_output, HasSubstr("    | the last words\n"));
}

TEST(Supervisor, TellsEveryFatalSignal) {
  for (const char* name :
       {"HUP", "INT", "QUIT", "ILL", "ABRT", "BUS", "FPE", "KILL", "SEGV", "TERM"}) {
    const int number = *signal_number(name);
    const Ran ran = supervise_script(
        2,
        std::string("ulimit -c 0; [ $RANK = 0 ] && exec sleep 60; kill -") + name +
            " $$; sleep 60");
    EXPECT_EQ(ran.status.shell_code(), 128 + number) << name << ran.error_output;
    EXPECT_THAT(ran.error_output, HasSubstr(std::string("(SIG") + name + ")"));
    EXPECT_LT(ran.seconds, 40) << name;
    if (number == SIGKILL) {
      EXPECT_THAT(ran.error_output, HasSubstr("memory    : "));
    }
  }
}

TEST(Supervisor, KillsAWorkerThatIgnoresSigterm) {
  const Ran ran = supervise_script(
      2, "[ $RANK = 1 ] && { sleep 0.2; exit 3; }; trap '' TERM; while :; do sleep 0.1; done");
  EXPECT_EQ(ran.status.shell_code(), 3);
  EXPECT_LT(ran.seconds, 40);
  EXPECT_THAT(
      ran.error_output, HasSubstr("killed ranks 0, which did not end within 0.7 s of SIGTERM"));
}

TEST(Supervisor, LeavesNoGrandchild) {
  for (const char* end : {"exit 0", "exit 9"}) {
    const std::string mark = testing::unique_mark();
    // The grandchild leaves the session and its parent ends: only the subreaper finds it.
    const Ran ran = supervise_script(
        2,
        "export " + mark + "; (setsid sleep 300 & setsid sh -c 'trap \"\" TERM; sleep 300' &) ; " +
            end);
    EXPECT_EQ(ran.status.shell_code(), std::string(end) == "exit 0" ? 0 : 9);
    EXPECT_LT(ran.seconds, 40);
    EXPECT_EQ(testing::processes_left(mark), 0);
  }
}

TEST(Supervisor, KilledItselfLeavesNothing) {
  const std::string mark = testing::unique_mark();
  const Ran ran = supervise_script(
      2,
      "export " + mark + "; setsid sleep 300 & echo started; sleep 300",
      "started\nstarted\n",
      [](pid_t pid) { ::kill(pid, SIGKILL); });
  EXPECT_EQ(ran.status.signal, SIGKILL);
  for (int i = 0; i < 200 && testing::processes_left(mark) > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(testing::processes_left(mark), 0);
}

TEST(Supervisor, ForwardsSignalsAndPassesPreemptionOn) {
  const Ran ran = supervise_script(
      2,
      "trap 'echo saved; exit 75' TERM; echo started; while :; do sleep 0.05; done",
      "started\nstarted\n",
      [](pid_t pid) { ::kill(pid, SIGTERM); });
  EXPECT_EQ(ran.status.shell_code(), 75) << ran.error_output;
  EXPECT_THAT(ran.output, HasSubstr("saved\nsaved\n"));
  EXPECT_THAT(ran.error_output, Not(HasSubstr("FAILED")));
}

// As when SLURM signals a step and also the srun that forwards the signal; the save takes longer.
TEST(Supervisor, TakesTwoTermsForOneRequest) {
  const Ran ran = supervise_script(
      2,
      "trap 'sleep 0.4; echo saved; exit 75' TERM; echo started; while :; do sleep 0.05; done",
      "started\nstarted\n",
      [](pid_t pid) {
        ::kill(pid, SIGTERM);
        ::usleep(100'000);
        ::kill(pid, SIGTERM);
      });
  EXPECT_EQ(ran.status.shell_code(), 75) << ran.error_output;
  EXPECT_THAT(ran.output, HasSubstr("saved\nsaved\n"));
}

TEST(Supervisor, EndsAtOnceAtASecondInterrupt) {
  const Ran ran = supervise_script(
      1, "trap '' INT; echo started; while :; do sleep 0.05; done", "started\n", [](pid_t pid) {
        ::kill(pid, SIGINT);
        ::usleep(100'000);
        ::kill(pid, SIGINT);
      });
  EXPECT_LT(ran.seconds, 20);  // instead of the 30 s for saving
}

TEST(Supervisor, DiesOfASignalAsItsWorkersDo) {
  const Ran ran =
      supervise_script(2, "echo started; exec sleep 60", "started\nstarted\n", [](pid_t pid) {
        ::kill(pid, SIGINT);
      });
  EXPECT_EQ(ran.status.shell_code(), 128 + SIGINT);
  EXPECT_LT(ran.seconds, 40);
}

TEST(Supervisor, ReportsASaveThatFailedAfterTheSignal) {
  const Ran ran = supervise_script(
      1,
      "trap 'echo disk full >&2; exit 4' TERM; echo started; while :; do sleep 0.05; done",
      "started\n",
      [](pid_t pid) { ::kill(pid, SIGTERM); });
  EXPECT_EQ(ran.status.shell_code(), 4);
  EXPECT_THAT(ran.error_output, HasSubstr("    | disk full\n"));
}

TEST(Supervisor, TakesAWorkersOwnPreemptionForNoFailure) {
  const Ran ran = supervise_script(2, "[ $RANK = 0 ] && sleep 0.2; exit 75");
  EXPECT_EQ(ran.status.shell_code(), 75);
  EXPECT_THAT(ran.error_output, Not(HasSubstr("FAILED")));
}

TEST(Supervisor, LooksForTheCauseOfALostPeer) {
  const Ran ran = supervise_script(2, "[ $RANK = 0 ] && exit 7; sleep 0.05; kill -SEGV $$");
  EXPECT_EQ(ran.status.shell_code(), 128 + SIGSEGV) << ran.error_output;
}

TEST(Supervisor, TakesABrokenPipeForALostPeer) {
  const Ran ran = supervise_script(
      2, "[ $RANK = 0 ] && { sleep 0.2; kill -PIPE $$; }; sleep 0.25; kill -KILL $$");
  EXPECT_EQ(ran.status.shell_code(), 128 + SIGKILL) << ran.error_output;
}

TEST(Supervisor, PassesRankZeroThroughByteForByte) {
  // More than a pipe buffers, without newline, with bytes that are not text.
  const Ran ran =
      supervise_script(1, "head -c 300000 /dev/zero | tr '\\0' '\\377'; printf '\\000end'");
  EXPECT_EQ(ran.output.size(), 300004U);
  EXPECT_EQ(ran.output.substr(0, 300000), std::string(300000, '\xff'));
  EXPECT_EQ(ran.output.substr(300000), std::string("\0end", 4));
}

TEST(Supervisor, KeepsLinesOfDifferentRanksApart) {
  const Ran ran = supervise_script(
      4,
      "[ $RANK = 0 ] && exit 0; i=0; while [ $i -lt 500 ]; do printf ab$RANK; printf 'cd%d\\n' "
      "$RANK; i=$((i+1)); done");
  EXPECT_EQ(ran.status.shell_code(), 0);
  size_t begin = 0, lines = 0;
  while (begin < ran.output.size()) {
    const size_t end = ran.output.find('\n', begin);
    const std::string line = ran.output.substr(begin, end - begin);
    EXPECT_TRUE(line == "ab1cd1" || line == "ab2cd2" || line == "ab3cd3") << line;
    begin = end + 1;
    ++lines;
  }
  EXPECT_EQ(lines, 1500U);
}

TEST(Supervisor, MakesTheReportPrintable) {
  const Ran ran = supervise_script(
      1, "printf 'a\\377b\\033[31mred\\007\\n' >&2; head -c 100000 /dev/zero >&2; exit 2");
  EXPECT_EQ(ran.status.shell_code(), 2);
  EXPECT_THAT(
      ran.error_output,
      HasSubstr("    | a\xEF\xBF\xBD"
                "bred\n"));
}

TEST(Supervisor, RunsSixtyFourWorkers) {
  const Ran ran = supervise_script(64, "echo rank $RANK");
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  for (int rank = 0; rank < 64; ++rank) {
    EXPECT_THAT(ran.output, HasSubstr("rank " + std::to_string(rank) + "\n"));
  }
}

// Each worker increments a key of the store and waits until all have done so.
TEST(Supervisor, RunsSixtyFourWorkersThatMeet) {
  constexpr const char* kMeet = R"(
import os, socket, struct, sys
def text(t): return struct.pack('<Q', len(t)) + t
store = socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))
store.sendall(b'\0' + struct.pack('<I', 0x3C85F7CE))
store.sendall(b'\4' + text(b'met') + struct.pack('<q', 1))
if struct.unpack('<q', store.recv(8, socket.MSG_WAITALL))[0] == int(os.environ['WORLD_SIZE']):
    store.sendall(b'\1' + text(b'all') + text(b'1'))
store.sendall(b'\6' + struct.pack('<Q', 1) + text(b'all'))
assert store.recv(1) == b'\0'
sys.stdout.write('rank ' + os.environ['RANK'] + ' met all\n')  # at once, which print() is not
)";
  const Ran ran = testing::run(testing::part("supervise", {"64", "python3", "-c", kMeet}));
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  for (int rank = 0; rank < 64; ++rank) {
    EXPECT_THAT(ran.output, HasSubstr("rank " + std::to_string(rank) + " met all\n"));
  }
}

TEST(Supervisor, OutlivesItsKeeper) {
  const Ran ran = supervise_script(
      1,
      "for child in $(cat /proc/$PPID/task/*/children); do grep -q lockstep-keeper "
      "/proc/$child/comm && "
      "kill -9 $child && echo killed; done; exit 0");
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  EXPECT_EQ(ran.output, "killed\n");
}

TEST(Supervisor, ReportsAWorkersMessageWithoutCredentials) {
  const Ran ran = supervise_script(
      1,
      "echo '{\"message\": \"cannot get https://store/a?sig=canary\"}' > $TORCHELASTIC_ERROR_FILE; "
      "exit 1");
  EXPECT_EQ(ran.status.shell_code(), 1);
  EXPECT_THAT(ran.error_output, HasSubstr("cannot get https://store/a?***"));
  EXPECT_THAT(ran.error_output, Not(HasSubstr("canary")));
}

TEST(Process, LeaksNoDescriptorIfThereAreTooFew) {
  const int lowest = ::dup(STDERR_FILENO);
  ASSERT_GE(lowest, 0);
  ::close(lowest);
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit few{
      static_cast<rlim_t>(lowest) + 3, usual.rlim_max};  // for one pipe, and half of one
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  ProcessSpec spec;
  spec.argv = {"true"};
  EXPECT_THROW(Process::start(spec), Error);
  const int after = ::dup(STDERR_FILENO);
  ::close(after);
  ::setrlimit(RLIMIT_NOFILE, &usual);
  EXPECT_EQ(after, lowest);
}

TEST(ErrorFolder, IsRemovedAtItsEndOrByTheNextSupervisor) {
  const TemporaryFolder temporary;
  const char* const usual = std::getenv("TMPDIR");
  const std::string before = usual == nullptr ? "" : usual;
  ::setenv("TMPDIR", temporary.path().c_str(), 1);
  const auto abandoned = temporary.path() / "lockstep-errors-abcdef";
  const auto other = temporary.path() / "lockstep-other";
  std::filesystem::create_directories(abandoned / "0");
  std::filesystem::create_directories(other);
  {
    const ErrorFolder first;
    EXPECT_FALSE(std::filesystem::exists(abandoned));
    EXPECT_EQ(first.file(3), first.path() / "3" / "error.json");
    const ErrorFolder second;  // of another supervisor that runs at the same time
    EXPECT_TRUE(std::filesystem::exists(first.path() / "3"));
    EXPECT_NE(first.path(), second.path());
  }
  EXPECT_TRUE(std::filesystem::exists(other));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temporary.path()), {}), 1);
  if (usual == nullptr) {
    ::unsetenv("TMPDIR");
  } else {
    ::setenv("TMPDIR", before.c_str(), 1);
  }
}

TEST(Supervisor, TellsAProgramThatCannotRun) {
  SupervisorOptions options;
  options.argv = {"no-such-program-here"};
  try {
    supervise(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kEnvironment);
    EXPECT_THAT(error.message(), HasSubstr("cannot run 'no-such-program-here': No such file"));
  }
}

}  // namespace supervisor_test
}  // namespace lockstep::launch
