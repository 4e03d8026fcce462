// Tests of the progress line.
#include "monitor/progress.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include "base/log.h"

namespace lockstep::monitor {
namespace progress_test {

ProgressFigures all_figures(int64_t step = 12) {
  return {
      .step = step,
      .total_steps = 5000,
      .loss = 3.45678,
      .learning_rate = 3e-4,
      .grad_norm = 1.2345,
      .tokens_per_s = 45234,
      .peak_share = 0.62,
      .memory_bytes = int64_t{1200} << 20,
      .data_share = 0.012,
      .communication_share = 0.04,
      .seconds_left = 192};
}

/// Sets an environment variable for its lifetime.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    ::setenv(name, value, /*overwrite=*/1);
  }
  ~Environment() { ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

TEST(FormatProgress, TellsEverything) {
  EXPECT_EQ(
      format_progress(all_figures(), 0),
      "step   12/5000  loss 3.4568   lr 3.00e-04  norm 1.23    45.2k tok/s  62% of peak   1.2 GiB  "
      "data  1%  comm  4%  03:12 left");
}

TEST(FormatProgress, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(
      format_progress({.step = 3, .loss = 2.0, .learning_rate = 0}, 0),
      "step 3  loss 2.0000   lr 0.00e+00");
}

TEST(FormatProgress, FitsAnyWidthAndDropsTheLeastTellingFirst) {
  EXPECT_EQ(
      format_progress(all_figures(), 79),
      "step   12/5000  loss 3.4568   lr 3.00e-04  norm 1.23    45.2k tok/s  03:12 left");
  EXPECT_EQ(format_progress(all_figures(), 40), "step   12/5000  loss 3.4568   03:12 left");
  EXPECT_EQ(format_progress(all_figures(), 20), "step   12/5000");
  EXPECT_EQ(format_progress(all_figures(), 5), "step ");
  for (int width = 1; width < 160; ++width) {
    EXPECT_LE(format_progress(all_figures(), width).size(), static_cast<size_t>(width));
  }
}

TEST(FormatProgress, KeepsItsColumnsFromStepToStep) {
  ProgressFigures later = all_figures(4999);
  later.loss = 10.5;
  later.grad_norm = 0.01234;
  later.tokens_per_s = 950;
  later.peak_share = 0.05;
  later.memory_bytes = int64_t{640} << 20;
  const std::string first = format_progress(all_figures(), 0);
  const std::string second = format_progress(later, 0);
  EXPECT_EQ(first.size(), second.size()) << first << "\n" << second;
  EXPECT_EQ(first.find("norm"), second.find("norm"));
  EXPECT_EQ(first.find("tok/s"), second.find("tok/s"));
}

TEST(FormatProgress, BearsNumbersThatAreNone) {
  ProgressFigures figures = all_figures();
  figures.loss = std::nan("");
  figures.grad_norm = std::numeric_limits<double>::infinity();
  figures.seconds_left = std::nan("");
  const std::string line = format_progress(figures, 0);
  EXPECT_NE(line.find("loss nan"), std::string::npos) << line;
  EXPECT_NE(line.find("norm inf"), std::string::npos) << line;
  EXPECT_NE(line.find("? left"), std::string::npos) << line;
}

TEST(Format, RoundsForPeople) {
  EXPECT_EQ(format_duration(0.4), "00:00");
  EXPECT_EQ(format_duration(59.6), "01:00");
  EXPECT_EQ(format_duration(3723), "1:02:03");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600 + 59), "2d 03h");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(1e300), "?");
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1023), "1 KiB");
  EXPECT_EQ(format_bytes(int64_t{640} << 20), "640 MiB");
  EXPECT_EQ(format_bytes(int64_t{1536} << 20), "1.5 GiB");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999.4), "999");
  EXPECT_EQ(format_count(999.5), "1.00k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(4.56e6), "4.56M");
}

TEST(TerminalWidth, IsWhatTheSupervisorTellsBehindAPipe) {
  if (::isatty(STDERR_FILENO) != 0) {
    GTEST_SKIP() << "standard error is a terminal";
  }
  EXPECT_EQ(terminal_width(), std::nullopt);
  {
    const Environment told("LOCKSTEP_TERMINAL_WIDTH", "123");
    EXPECT_EQ(terminal_width(), 123);
  }
  for (const char* const wrong : {"", "0", "-3", "wide"}) {
    const Environment told("LOCKSTEP_TERMINAL_WIDTH", wrong);
    EXPECT_EQ(terminal_width(), std::nullopt);
  }
}

TEST(Progress, RedrawsInPlaceAndIsNotTornByOtherLines) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::kBar, 21);
    progress.update(all_figures(1), true, 0.0);
    log_warning("the disk is slow");
    progress.update(all_figures(2), true, 0.01);  // too soon: drawn later
    progress.update(all_figures(3), true, 0.02);
    progress.activity("evaluating", 0.03);
    progress.update(all_figures(4), true, 0.04);
    progress.update(all_figures(5), false, 0.05);
  }
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "\r\x1b[Kstep    1/5000"
      "\r\x1b[Kwarning: the disk is slow\n\r\x1b[Kstep    1/5000"
      "\r\x1b[Kevaluating"
      "\r\x1b[Kstep    4/5000"
      "\r\x1b[Kstep    5/5000\n");
}

TEST(Progress, KeepsLoggedStepsAndEvaluationsAboveTheLiveLine) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::kRich, 21);
    progress.update(all_figures(1), false, 0.0);
    progress.update(all_figures(2), true, 1.0);
    progress.activity("evaluating", 2.0);
    progress.print("eval  step 2");
    progress.update(all_figures(3), true, 3.0);
  }
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "\r\x1b[Kstep    1/5000"
      "\r\x1b[Kstep    2/5000\n\r\x1b[Kstep    1/5000"
      "\r\x1b[Kstep    2/5000"
      "\r\x1b[Kevaluating"
      "\r\x1b[Keval  step 2\n\r\x1b[Kevaluating"
      "\r\x1b[Kstep    2/5000"
      "\r\x1b[Kstep    3/5000\n\r\x1b[Kstep    2/5000"
      "\r\x1b[Kstep    3/5000"
      "\r\x1b[K");
}

TEST(FormatProgress, ShowsTheFiguresOfTheTask) {
  ProgressFigures figures{.step = 3, .loss = 2.0};
  figures.metrics = {
      {"rewards/accuracies", 0.75}, {"rewards/chosen", 1.5}, {"mixture/web", 0.5}, {"kl", 12.345}};
  EXPECT_EQ(
      format_progress(figures, 0),
      "step 3  loss 2.0000   rewards/accuracies 0.750   kl 12.35   lr 0.00e+00");
}

TEST(FormatEvaluation, TellsLossMetricsAndTime) {
  EvaluationFigures figures{.step = 40, .total_steps = 60, .loss = 6.3254};
  figures.metrics = {{"perplexity", 558.53}, {"token_accuracy", 0.15}, {"logps/chosen", -3.0}};
  figures.is_best = true;
  figures.seconds = 26.1;
  EXPECT_EQ(
      format_evaluation(figures),
      "eval  step 40/60  eval_loss 6.325  perplexity 558.5  accuracy 0.150  best  (26 s)");
  EXPECT_EQ(
      format_evaluation(
          {.set = "test_mm",
           .loss_name = "test_loss_mm",
           .step = 4,
           .loss = 0.25,
           .training = "  epoch 2.00  train_loss 0.3812",
           .seconds = 5.24}),
      "test_mm  step 4  epoch 2.00  train_loss 0.3812  test_loss_mm 0.2500  (5.2 s)");
}

TEST(Progress, PrintsLoggedStepsElsewhere) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::kPlain);
    progress.update({.step = 1, .total_steps = 9, .loss = 2}, false, 0.0);
    progress.update({.step = 2, .total_steps = 9, .loss = 2}, true, 10.0);
    progress.activity("evaluating", 11.0);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "step 2/9  loss 2.0000   lr 0.00e+00\n");
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::kSilent);
    progress.update({.step = 2, .total_steps = 9}, true, 10.0);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Progress, TakesTheWidthOfARealTerminal) {
  int terminal = -1;
  int screen = -1;
  winsize size{.ws_row = 24, .ws_col = 30, .ws_xpixel = 0, .ws_ypixel = 0};
  if (::openpty(&terminal, &screen, nullptr, nullptr, &size) != 0) {
    GTEST_SKIP() << "no pseudo-terminal here";
  }
  const Environment type("TERM", "xterm");
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(screen, STDERR_FILENO);
  EXPECT_EQ(terminal_width(), 30);
  {
    const Environment dumb("TERM", "dumb");
    EXPECT_EQ(terminal_width(), std::nullopt);
  }
  {
    const Environment again("TERM", "xterm");
    Progress progress;
    progress.update(all_figures(), false, 0.0);
  }
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  // A terminal may deliver the output in several chunks: read up to the end of the line.
  std::string drawn;
  std::array<char, 200> piece{};
  pollfd readable{.fd = terminal, .events = POLLIN, .revents = 0};
  while (!drawn.ends_with('\n') && ::poll(&readable, 1, 10'000) > 0) {
    const ssize_t count = ::read(terminal, piece.data(), piece.size());
    if (count <= 0) {
      break;
    }
    drawn.append(piece.data(), static_cast<size_t>(count));
  }
  ::close(terminal);
  ::close(screen);
  EXPECT_EQ(drawn, "\r\x1b[Kstep   12/5000  loss 3.4568\r\n");
}

}  // namespace progress_test
}  // namespace lockstep::monitor
