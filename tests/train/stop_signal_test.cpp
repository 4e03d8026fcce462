// Ranks that are threads of one process, which has one handler of each signal.
#include "train/stop_signal.h"

#include <csignal>
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

}  // namespace stop_signal_test
}  // namespace lockstep::train
