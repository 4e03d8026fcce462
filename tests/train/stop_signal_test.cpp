// Signals of ranks that are threads of one process, which has one handler per signal.
#include "train/stop_signal.h"

#include <csignal>
#include <cstdlib>
#include <optional>

#include <gtest/gtest.h>

namespace lockstep::train {
namespace stop_signal_test {

bool is_ignored(int signal) {
  struct sigaction now{};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_IGN;
}

TEST(StopSignal, TheFirstRankToEndLeavesTheOthersTheirSignals) {
  const auto terminate = std::signal(SIGTERM, SIG_IGN), user = std::signal(SIGUSR1, SIG_IGN);
  const config::CheckpointSection section;
  std::optional<StopSignal> first(std::in_place), second(std::in_place);
  std::optional<SaveSignals> saves(std::in_place, section), others(std::in_place, section);
  first.reset();
  saves.reset();
  std::raise(SIGTERM);
  std::raise(SIGUSR1);
  EXPECT_TRUE(second->requested());
  EXPECT_EQ(others->take(), SaveSignals::Asked::kSave);
  EXPECT_FALSE(is_ignored(SIGTERM));
  second.reset();
  others.reset();
  EXPECT_TRUE(is_ignored(SIGTERM));
  EXPECT_TRUE(is_ignored(SIGUSR1));
  EXPECT_FALSE(StopSignal().requested());
  std::signal(SIGTERM, terminate);
  std::signal(SIGUSR1, user);
}

/// When the user closes the terminal, the run saves and stops. Under nohup it continues.
TEST(StopSignal, AHangUpIsARequestToStopUnlessNohupSaidOtherwise) {
  const auto before = std::signal(SIGHUP, SIG_DFL);
  {
    const StopSignal stop;
    std::raise(SIGHUP);
    EXPECT_TRUE(stop.requested());
  }
  std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignal stop;
    EXPECT_TRUE(is_ignored(SIGHUP));
    std::raise(SIGHUP);
    EXPECT_FALSE(stop.requested());
  }
  EXPECT_TRUE(is_ignored(SIGHUP));
  std::signal(SIGHUP, before);
}

TEST(StopSignal, ASecondInterruptEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGINT);
        std::raise(SIGINT);
        std::_Exit(0);
      },
      ::testing::KilledBySignal(SIGINT),
      "");
}

/// A scheduler may send SIGTERM several times and then wait.
TEST(StopSignal, ASecondTerminationDoesNot) {
  const StopSignal stop;
  std::raise(SIGTERM);
  std::raise(SIGTERM);
  EXPECT_TRUE(stop.requested());
}

TEST(SaveSignals, TheMostThatWasAskedForIsTaken) {
  config::CheckpointSection section;
  section.on_usr1 = "save";
  section.on_usr2 = "save_and_stop";
  SaveSignals signals(section);
  EXPECT_EQ(signals.take(), SaveSignals::Asked::kNothing);
  std::raise(SIGUSR2);
  std::raise(SIGUSR1);
  EXPECT_EQ(signals.take(), SaveSignals::Asked::kSaveAndStop);
  EXPECT_EQ(signals.take(), SaveSignals::Asked::kNothing);
  section.on_usr1 = "ignore";
  std::raise(SIGUSR1);
  EXPECT_EQ(signals.take(), SaveSignals::Asked::kNothing);
  section.on_usr1 = "save";
  EXPECT_EQ(signals.take(), SaveSignals::Asked::kNothing) << "what was ignored does not come later";
}

/// A program may train twice: the second run ignores pending requests of the first.
TEST(SaveSignals, ARunDoesNotTakeWhatAnEarlierOneWasAsked) {
  const config::CheckpointSection section;
  {
    const SaveSignals earlier(section);
    std::raise(SIGUSR1);
  }
  SaveSignals signals(section);
  EXPECT_EQ(signals.take(), SaveSignals::Asked::kNothing);
}

}  // namespace stop_signal_test
}  // namespace lockstep::train
