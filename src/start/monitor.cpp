// `lockstep monitor`: serves the monitoring page.
#include "start/monitor.h"

#include <csignal>
#include <cstdio>
#include <filesystem>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "start/parse.h"
#include "start/ranks.h"
#include "start/terminal.h"
#include "watch/page/page.h"

namespace lockstep::start {
namespace {

// A signal handler can only access globals.
watch::HttpServer* serving = nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void on_end(int /*signal*/) {
  if (serving != nullptr) {
    serving->stop();
  }
}

bool is_of_this_machine(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

}  // namespace

int run_monitor(std::vector<std::string> arguments) {
  std::vector<std::filesystem::path> folders;
  std::string address = "127.0.0.1";
  int port = 0;
  bool as_text = false, once = false, on_terminal = false;
  CLI::App app(
      "Serve a page with the curves, events and configurations of runs, during and after training. "
      "It only reads the folders and downloads nothing.",
      "lockstep monitor");
  app.add_option("folders", folders, "output_dirs of runs, or folders that contain runs")
      ->required();
  app.add_option("--address", address, "Address and port to listen on")->capture_default_str();
  app.add_option("--port", port, "0: a free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  CLI::Option* const text = app.add_flag(
      "--text",
      as_text,
      "Print the ranks of one run on this machine every two seconds: their activity, since when, "
      "and the graph of waits");
  app.add_flag("--once", once, "With --text: print once")->needs(text);
  app.add_flag(
         "--tui",
         on_terminal,
         "Show curves, ranks and events in the terminal (at least 40 by 10 characters), one run at "
         "a time")
      ->excludes(text);
  if (parse(app, std::move(arguments)) == Parsed::kHelpShown) {
    return 0;
  }
  if (as_text) {
    if (folders.size() != 1) {
      throw Error(ErrorKind::kConfig, "--text shows one run", "lockstep monitor --text RUN");
    }
    if (once) {
      fmt::print("{}", ranks_text(folders.front(), /*with_stacks=*/false));
      return 0;
    }
    return watch_ranks(folders.front());
  }
  if (on_terminal) {
    return watch_on_terminal(folders);
  }
  watch::RunsPage page(folders, address, watch::draw_token());
  page.set_live_ranks(ranks_text);
  watch::HttpServer server(
      address, port, [&](const watch::HttpRequest& request) { return page.answer(request); });
  if (!is_of_this_machine(address)) {
    log_warning(
        "{} is reachable from other machines without encryption; use an ssh tunnel to 127.0.0.1 "
        "instead",
        address);
  }
  serving = &server;
  std::signal(SIGINT, on_end);
  std::signal(SIGTERM, on_end);
  fmt::print("{}\n", watch::page_address(address, server.port(), page.token()));
  std::fflush(stdout);
  server.run();
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  serving = nullptr;
  return 0;
}

}  // namespace lockstep::start
