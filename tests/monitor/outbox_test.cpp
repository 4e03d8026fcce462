// Tests of the outbox: order, retries and recovery after a kill.
#include "monitor/outbox.h"

#include <atomic>
#include <mutex>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "temporary_folder.h"

namespace lockstep::monitor {
namespace outbox_test {

/// Server that can be switched off.
struct Server {
  std::mutex mutex;
  std::vector<std::string> got;
  std::atomic<bool> is_down = false;
  std::atomic<int> asked = 0;

  Outbox::Send send() {
    return [this](const std::vector<std::string>& lines) {
      ++asked;
      if (is_down) {
        throw Error(ErrorKind::kEnvironment, "nobody answers");
      }
      const std::lock_guard lock(mutex);
      for (const std::string& line : lines) {
        if (line == "wrong") {
          throw Error(ErrorKind::kRun, "what is this?");
        }
        got.push_back(line);
      }
    };
  }
};

void nothing() {}

std::vector<std::string> numbered(int count) {
  std::vector<std::string> lines;
  for (int i = 0; i < count; ++i) {
    lines.push_back(fmt::format("line {}", i));
  }
  return lines;
}

TEST(Outbox, SendsEveryLineInOrderAndLeavesNothing) {
  const TemporaryFolder folder;
  Server server;
  Outbox outbox(folder.path() / "outbox", "it", false, server.send(), nothing);
  const auto lines = numbered(1000);
  for (const std::string& line : lines) {
    outbox.add(line);
  }
  EXPECT_TRUE(outbox.finish());
  EXPECT_EQ(server.got, lines);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "outbox"));
}

TEST(Outbox, KeepsWhatAServerThatIsDownDidNotGetForTheNextAttempt) {
  const TemporaryFolder folder;
  Server server;
  server.is_down = true;
  {
    Outbox outbox(folder.path() / "outbox", "it", false, server.send(), nothing);
    outbox.add("one");
    outbox.add("two");
    EXPECT_FALSE(outbox.finish());
  }
  EXPECT_GE(server.asked, 1);
  EXPECT_EQ(read_file(folder.path() / "outbox"), "one\ntwo\n");
  write_file_atomically(folder.path() / "outbox", "one\ntwo\nthr");  // killed during a write
  server.is_down = false;
  Outbox again(folder.path() / "outbox", "it", true, server.send(), nothing);
  again.add("four");
  EXPECT_TRUE(again.finish());
  EXPECT_EQ(server.got, (std::vector<std::string>{"one", "two", "four"}));
}

TEST(Outbox, GoesOnWhenTheServerAnswersAgain) {
  const TemporaryFolder folder;
  Server server;
  server.is_down = true;
  Outbox outbox(folder.path() / "outbox", "it", false, server.send(), nothing);
  outbox.add("early");
  while (server.asked == 0) {
    std::this_thread::yield();
  }
  server.is_down = false;
  outbox.add("late");
  EXPECT_TRUE(outbox.finish());
  EXPECT_EQ(server.got, (std::vector<std::string>{"early", "late"}));
}

TEST(Outbox, DropsWhatTheServerRefusesAndAnEarlierRun) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "outbox", "of another run\n");
  Server server;
  Outbox outbox(folder.path() / "outbox", "it", false, server.send(), nothing);
  outbox.add("wrong");
  while (server.asked == 0) {
    std::this_thread::yield();
  }
  outbox.add("right");
  EXPECT_TRUE(outbox.finish());
  EXPECT_EQ(server.got, (std::vector<std::string>{"right"}));
}

TEST(Outbox, SendsALineThatIsLongerThanABatch) {
  const TemporaryFolder folder;
  Server server;
  Outbox outbox(folder.path() / "outbox", "it", false, server.send(), nothing);
  const std::vector<std::string> lines{"first", std::string(3 << 20, 'x'), "last"};
  for (const std::string& line : lines) {
    outbox.add(line);
  }
  EXPECT_TRUE(outbox.finish());
  EXPECT_EQ(server.got, lines);
}

}  // namespace outbox_test
}  // namespace lockstep::monitor
