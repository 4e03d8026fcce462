// Tests of status lines on a shared console.
#include "launch/workers/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep::launch {
namespace output_test {

const std::string kClear = "\r\x1b[K";

// Streams of two workers on one console; all are pipes of this process.
class Streams : public ::testing::Test {
 protected:
  Streams() {
    for (int* pipe : {first_, second_, shown_}) {
      EXPECT_EQ(::pipe2(pipe, O_NONBLOCK | O_CLOEXEC), 0);
    }
    console_ = std::make_unique<Console>(loop_, shown_[1]);
    StreamRoute route;
    route.console = console_.get();
    first_pump_ = std::make_unique<OutputPump>(loop_, first_[0], route, tail_);
    second_pump_ = std::make_unique<OutputPump>(loop_, second_[0], route, tail_);
  }
  ~Streams() override {
    first_pump_.reset();
    second_pump_.reset();
    console_.reset();
    for (int* pipe : {first_, second_, shown_}) {
      ::close(pipe[0]);
      ::close(pipe[1]);
    }
  }

  // Returns the console's output for a worker's text.
  std::string say(int* pipe, const std::string& text) {
    EXPECT_EQ(::write(pipe[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    while (loop_.wait(std::chrono::milliseconds(0))) {
    }
    return shown();
  }
  std::string shown() {
    // A mark after the output, so that reading does not block.
    EXPECT_EQ(::write(shown_[1], "|", 1), 1);
    std::string text(65536, '\0');
    text.resize(static_cast<size_t>(::read(shown_[0], text.data(), text.size())));
    text.pop_back();
    return text;
  }

  EventLoop loop_;
  int first_[2], second_[2], shown_[2];
  LineTail tail_;
  std::unique_ptr<Console> console_;
  std::unique_ptr<OutputPump> first_pump_, second_pump_;
};

TEST_F(Streams, KeepTheStatusLineBelowEverybodysLines) {
  EXPECT_EQ(say(first_, kClear + "step 1"), kClear + "step 1");
  EXPECT_EQ(say(second_, "a line\n"), kClear + "a line\n" + kClear + "step 1");
  EXPECT_EQ(say(first_, kClear + "step 2"), kClear + "step 2");
  // A line of the worker that owns the status line, in the format of base/log.h.
  const std::string both = say(first_, kClear + "saved\n" + kClear + "step 3");
  EXPECT_TRUE(both.ends_with("saved\n" + kClear + "step 3")) << both;
  EXPECT_EQ(both.find("step 2"), std::string::npos);
  // The status line ends and stays on the screen.
  EXPECT_EQ(say(first_, "\n"), kClear + "step 3\n");
  EXPECT_EQ(say(second_, "the end\n"), "the end\n");
}

TEST_F(Streams, FollowAStatusLineThatIsCutAnywhere) {
  for (size_t cut = 1; cut < 20; ++cut) {
    const std::string last = kClear + "step " + std::to_string(cut + 100);
    const std::string text = kClear + "before" + last;
    const std::string first = say(first_, text.substr(0, cut));
    const std::string shown = first + say(first_, text.substr(cut));
    EXPECT_TRUE(shown.ends_with(last)) << cut;
    EXPECT_EQ(say(second_, "line\n"), kClear + "line\n" + last) << cut;
  }
}

TEST_F(Streams, LeaveTheStatusLineOfAWorkerThatDied) {
  say(first_, kClear + "step 7");
  first_pump_->finish();
  EXPECT_EQ(shown(), kClear + "step 7\n");
  EXPECT_THAT(tail_.lines(), ::testing::ElementsAre(::testing::HasSubstr("step 7")));
}

TEST_F(Streams, PassProgressBarsOfOthersOn) {
  EXPECT_EQ(say(first_, "10%\r20%\r"), "10%\r20%\r");
  EXPECT_EQ(say(first_, "done\n"), "done\n");
}

}  // namespace output_test
}  // namespace lockstep::launch
