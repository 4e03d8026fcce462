// Shows the terminal monitor with ncurses.
#include "start/terminal.h"

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <langinfo.h>
#include <unistd.h>

#define NCURSES_NOMACROS 1
#include <curses.h>

#include "base/error.h"
#include "base/format.h"
#include "start/ranks.h"
#include "start/screen.h"

namespace lockstep::start {
namespace {

constexpr int kRefreshMilliseconds = 1000;

/// Terminal. The destructor restores its state.
class Terminal {
 public:
  Terminal() {
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) {
      std::setlocale(LC_CTYPE, "C.UTF-8");  // ssh may not set a locale, but terminals use UTF-8
    }
    screen_ = ::newterm(nullptr, stdout, stdin);
    if (screen_ == nullptr) {
      const char* const name = std::getenv("TERM");
      throw Error(
          ErrorKind::kEnvironment,
          fmt::format("unknown terminal type: TERM is {}", name == nullptr ? "not set" : name),
          "set TERM=xterm-256color, or use `lockstep monitor --text RUN`");
    }
    ::cbreak();
    ::noecho();
    ::keypad(stdscr, TRUE);
    ::curs_set(0);
    ::timeout(kRefreshMilliseconds);
  }
  ~Terminal() {
    ::endwin();
    ::delscreen(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static void show(const RunScreen& run, size_t metric) {
    ::erase();
    if (COLS < 40 || LINES < 10) {
      ::mvaddstr(0, 0, "this terminal is too small: at least 40 by 10 is required");
    } else {
      const auto lines = run.lines(static_cast<size_t>(COLS), static_cast<size_t>(LINES), metric);
      for (size_t i = 0; i < lines.size(); ++i) {
        ::mvaddstr(static_cast<int>(i), 0, lines[i].c_str());
      }
    }
    ::refresh();
  }

 private:
  SCREEN* screen_ = nullptr;
};

/// Returns the current state of the run's ranks if the run is active on this machine.
std::string live_text(const std::filesystem::path& folder) {
  try {
    return ranks_text(folder, /*with_stacks=*/false);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

int watch_on_terminal(const std::vector<std::filesystem::path>& folders) {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
    throw Error(
        ErrorKind::kConfig,
        "--tui requires a terminal",
        "`lockstep monitor --text RUN` prints lines");
  }
  std::vector<RunScreen> runs;
  for (const std::filesystem::path& folder : folders) {
    for (const std::filesystem::path& run : watch::find_runs(folder)) {
      runs.emplace_back(run);
    }
  }
  if (runs.empty()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("no run in or below {}", folders.front().string()),
        "a run appears after it has written its first metrics");
  }
  const Terminal terminal;
  for (size_t run = 0, metric = 0;;) {
    runs[run].refresh(static_cast<double>(std::time(nullptr)), live_text(runs[run].folder()));
    Terminal::show(runs[run], metric);
    const size_t metrics = std::max<size_t>(1, runs[run].metrics().size());
    switch (::getch()) {
      case 'q':
        return 0;
      case 'n':
      case KEY_RIGHT:
        metric = (metric + 1) % metrics;
        break;
      case 'p':
      case KEY_LEFT:
        metric = (metric + metrics - 1) % metrics;
        break;
      case KEY_DOWN:
        run = (run + 1) % runs.size();
        break;
      case KEY_UP:
        run = (run + runs.size() - 1) % runs.size();
        break;
      default:
        break;
    }
  }
}

}  // namespace lockstep::start
