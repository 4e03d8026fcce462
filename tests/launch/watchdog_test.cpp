// Tests of torchelastic's file timers and of the health endpoint.
#include "launch/workers/watchdog.h"

#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/format.h"
#include "launch/agent/health_check.h"
#include "launch/helpers.h"
#include "launch/system/step_file.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace watchdog_test {

using ::testing::HasSubstr;
using testing::Ran;

TEST(Watchdog, ReadsTimers) {
  const auto request = parse_timer_request(
      R"({"version": 1, "pid": 12, "scope_id": "step", "expiration_time": 1.5, "signal": 9})");
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->pid, 12);
  EXPECT_EQ(request->scope, "step");
  EXPECT_EQ(request->expires, 1.5);
  EXPECT_EQ(request->signal, 9);
  for (const char* bad :
       {"",
        "{}",
        "[]",
        R"({"pid": -1, "scope_id": "s", "expiration_time": 1, "signal": 9})",
        R"({"pid": 1.5, "scope_id": "s", "expiration_time": 1, "signal": 9})",
        R"({"pid": 4294967308, "scope_id": "s", "expiration_time": 1, "signal": 9})",
        R"({"pid": 1, "scope_id": 3, "expiration_time": 1, "signal": 9})",
        R"({"pid": 1, "scope_id": "s", "expiration_time": 1e999, "signal": 9})",
        R"({"pid": 1, "scope_id": "s", "expiration_time": 1, "signal": 900})",
        R"({"pid": 1, "scope_id": "s", "expiration_time": 1, "signal": 2e21})"}) {
    EXPECT_FALSE(parse_timer_request(bad).has_value()) << bad;
  }
}

Ran launch_watched(const std::string& script) {
  return testing::run(
      testing::part("launch", {"--propagate-exit-code", "--no-python", "sh", "-c", script}),
      {"TORCHELASTIC_ENABLE_FILE_TIMER=1"});
}

const std::string kSay =
    "say() { printf '{\"version\":1,\"pid\":%d,\"scope_id\":\"%s\",\"expiration_time\":%s,"
    "\"signal\":10}\\n' $$ $1 $2 > \"$TORCHELASTIC_TIMER_FILE\"; }; ";

TEST(Watchdog, EndsAWorkerThatIsLate) {
  const Ran ran = launch_watched(kSay + "say epoch $(date +%s); sleep 60");
  EXPECT_EQ(ran.status.shell_code(), 128 + SIGUSR1) << ran.error_output;
  EXPECT_THAT(ran.error_output, HasSubstr("did not finish 'epoch' in time; sending SIGUSR1"));
}

TEST(Watchdog, LeavesAWorkerThatReleasesItsTimers) {
  const Ran ran = launch_watched(
      kSay +
      "say a $(($(date +%s) + 1)); say b 1e11; say a -1; sleep 2; echo done; "
      "test -p $TORCHELASTIC_TIMER_FILE && echo $TORCHELASTIC_TIMER_FILE");
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  EXPECT_THAT(ran.output, HasSubstr("done\n/"));
  const std::string pipe = ran.output.substr(5, ran.output.size() - 6);
  EXPECT_FALSE(std::filesystem::exists(pipe)) << pipe;
}

TEST(Watchdog, EndsWhatItsAgentStartedAlone) {
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    ::pause();
    ::_exit(0);
  }
  const Ran ran = launch_watched(fmt::format(
      "printf "
      "'{{\"version\":1,\"pid\":{},\"scope_id\":\"x\",\"expiration_time\":1,\"signal\":9}}\\n' "
      "> $TORCHELASTIC_TIMER_FILE; sleep 0.3",
      stranger));
  EXPECT_EQ(ran.status.shell_code(), 0) << ran.error_output;
  EXPECT_EQ(::waitpid(stranger, nullptr, WNOHANG), 0);
  ::kill(stranger, SIGKILL);
  ::waitpid(stranger, nullptr, 0);
}

TEST(HealthCheck, AnswersOnItsAddressAlone) {
  EventLoop loop;
  const Health health;
  const HealthCheck check(loop, "127.0.0.1", 0, health);
  for (int i = 0; i < 2; ++i) {
    const Connecting asking = connect_within("127.0.0.1", check.port(), std::chrono::seconds(10));
    ASSERT_EQ(asking.error, "");
    ASSERT_GT(::send(asking.socket.get(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 0);
    pollfd answer{asking.socket.get(), POLLIN, 0};
    while (::poll(&answer, 1, 0) == 0) {
      loop.wait(std::chrono::milliseconds(20));
    }
    char text[200] = "";
    ASSERT_GT(::recv(asking.socket.get(), text, sizeof text - 1, 0), 0);
    EXPECT_THAT(std::string(text), ::testing::StartsWith("HTTP/1.0 200 OK\r\n"));
  }
  EXPECT_NE(connect_within("127.0.0.2", check.port(), std::chrono::milliseconds(300)).error, "");
}

TEST(HealthCheck, DropsTheOldestOfTooManyConnections) {
  EventLoop loop;
  const Health health;
  const HealthCheck check(loop, "127.0.0.1", 0, health);
  // The second connection gets lower descriptors than the first.
  const int low[] = {::dup(STDERR_FILENO), ::dup(STDERR_FILENO)};
  std::vector<Socket> probes;
  for (int i = 0; i < 65; ++i) {
    if (i == 1) {
      ::close(low[0]);
      ::close(low[1]);
    }
    Connecting probe = connect_within("127.0.0.1", check.port(), std::chrono::seconds(10));
    ASSERT_EQ(probe.error, "");
    probes.push_back(std::move(probe.socket));
    ASSERT_TRUE(loop.wait(std::chrono::seconds(10)));
  }
  char byte = 0;
  EXPECT_EQ(::recv(probes[0].get(), &byte, 1, 0), 0);
  EXPECT_LT(::recv(probes[1].get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST(HealthCheck, TellsWhetherWorkersRunAndGetOn) {
  const TemporaryFolder folder;
  const std::filesystem::path quick = folder.path() / "quick", slow = folder.path() / "slow";
  Health health;
  EXPECT_EQ(health.answer("/readyz").status, 503);
  EXPECT_EQ(
      health.answer("/healthz?steps=20").status, 200);  // no step is late before one has started
  health.workers_run({quick, slow});
  EXPECT_EQ(health.answer("/readyz").status, 200);
  StepWriter first(quick), second(slow);
  for (int step = 1; step <= 40; ++step) {
    first.begin(step);
  }
  second.begin(38);
  second.begin(39);  // the median is of these two steps, so a long step counts as late
  ::usleep(100'000);
  first.begin(41);
  const std::string told = health.answer("/healthz").body;
  EXPECT_THAT(told, HasSubstr("\"workers\":2,\"step\":39,\"age_s\":0."));
  EXPECT_EQ(health.answer("/healthz?steps=1000000").status, 200);
  EXPECT_EQ(health.answer("/healthz?steps=1").status, 503);
  EXPECT_EQ(health.answer("/healthz?steps=few").status, 200);
  EXPECT_EQ(health.answer("/").body, "alive\n");
  health.workers_ended();
  EXPECT_EQ(health.answer("/readyz").status, 503);
  EXPECT_EQ(health.answer("/healthz?steps=1").status, 200);
}

TEST(HealthCheck, KnowsTheStepsOfItsWorkers) {
  const Ran ran = testing::run(
      testing::part(
          "launch",
          {"--no-python",
           "sh",
           "-c",
           "printf '%s\\n' '7 0.0 0.5' > $LOCKSTEP_STEP_FILE; exec python3 -c \""
           "import os, urllib.request as r; "
           "url = 'http://127.0.0.1:' + os.environ['TORCHELASTIC_HEALTH_CHECK_PORT']; "
           "print(r.urlopen(url + '/readyz').status, r.urlopen(url + '/healthz').read())\""}),
      {"TORCHELASTIC_HEALTH_CHECK_PORT=" + std::to_string([] {
         const Socket free = listen_on("127.0.0.1", 0);
         return bound_port(free);
       }())});
  EXPECT_THAT(ran.output, HasSubstr("200 b'{\"workers\":1,\"step\":7,")) << ran.error_output;
}

TEST(HealthCheck, IsThereAsLongAsTheAgentIs) {
  const Ran ran = testing::run(
      testing::part(
          "launch",
          {"--no-python",
           "python3",
           "-c",
           "import os, urllib.request as r; "
           "print(r.urlopen('http://127.0.0.1:' + os.environ['TORCHELASTIC_HEALTH_CHECK_PORT'])"
           ".read())"}),
      {"TORCHELASTIC_HEALTH_CHECK_PORT=" + std::to_string([] {
         const Socket free = listen_on("127.0.0.1", 0);
         return bound_port(free);
       }())});
  EXPECT_EQ(ran.output, "b'alive\\n'\n") << ran.error_output;
}

// After vfork a process is in uninterruptible sleep until its child ends.
TEST(Watchdog, KillsAWorkerThatHangsInTheKernelAndDoesNotStartItAgain) {
  const Ran ran = testing::run(
      testing::part(
          "launch",
          {"--propagate-exit-code",
           "--max-restarts=3",
           "--no-python",
           "python3",
           "-c",
           "import ctypes, os, time\n"
           "print('begins', flush=True)\n"
           "if ctypes.CDLL(None).vfork() == 0:\n"
           "  time.sleep(60)\n"
           "  os._exit(0)\n"}),
      {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=1"});
  EXPECT_EQ(ran.status.shell_code(), 128 + SIGKILL) << ran.error_output;
  EXPECT_THAT(ran.error_output, HasSubstr("rank 0 (PID "));
  EXPECT_THAT(ran.error_output, HasSubstr("in uninterruptible sleep for longer than"));
  EXPECT_EQ(ran.output, "begins\n");  // the worker was started once
}

TEST(Watchdog, RefusesATimeThatIsNone) {
  const Ran ran = testing::run(
      testing::part("launch", {"--no-python", "true"}),
      {"TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=soon"});
  EXPECT_EQ(ran.status.shell_code(), 2);
  EXPECT_THAT(
      ran.error_output,
      HasSubstr("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT=soon: not a number of seconds"));
}

}  // namespace watchdog_test
}  // namespace lockstep::launch
