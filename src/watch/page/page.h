// Web page of runs, served by `lockstep monitor`.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "watch/page/http_server.h"
#include "watch/record/columns.h"
#include "watch/record/rank_times.h"

namespace lockstep::watch {

/// Returns a file of src/watch/page/web, which was embedded at build time: "index.html", "app.js",
/// "ranks.js" or "app.css". Empty for other names.
std::string_view page_file(std::string_view name);

/// Returns 128 random bits as 32 hexadecimal digits.
std::string draw_token();

/// Returns the address for the user's browser: "http://127.0.0.1:8000/?token=..".
std::string page_address(const std::string& address, int port, const std::string& token);

/// Handles requests for the runs of several folders. Read-only. A request is rejected if it does
/// not contain the token (in the query of the first visit, in the cookie that this visit sets, or
/// as "Authorization: Bearer"), if its host is neither this machine's address nor `address` (DNS
/// rebinding), or if it comes from a page of another origin.
class RunsPage {
 public:
  /// Serves the runs in the folders and their subfolders. Requests scan the folders for new runs.
  /// Throws Error (config) if a folder does not exist.
  RunsPage(std::vector<std::filesystem::path> folders, std::string address, std::string token);

  /// Returns a description of what the ranks of a run on this machine are doing, with the stacks of
  /// their threads if requested. Throws Error if the run is not active.
  using LiveRanks = std::function<std::string(const std::filesystem::path& run, bool with_stacks)>;
  /// Enables live status. It must not be enabled if the run serves its own page, because a run
  /// cannot inspect itself.
  void set_live_ranks(LiveRanks live) { live_ = std::move(live); }

  /// Handles a request. Not thread-safe.
  HttpAnswer answer(const HttpRequest& request);
  const std::string& token() const { return token_; }

 private:
  struct Watched {
    std::filesystem::path folder;
    std::unique_ptr<MetricsReader> metrics;
    std::unique_ptr<RankTimes> ranks;
  };
  int refusal(const HttpRequest& request) const;
  HttpAnswer answer_data(const HttpRequest& request);
  void look_for_runs();
  Watched& run_of(const std::string& id);
  std::string runs_json();
  std::string details_json(Watched& run) const;
  std::string series_json(const HttpRequest& request);
  HttpAnswer live_ranks(const HttpRequest& request, const Watched& run) const;
  std::string table_csv(Watched& run) const;
  std::string prometheus();

  std::vector<std::filesystem::path> folders_;
  std::string address_, token_;
  LiveRanks live_;
  double looked_ = -1e9;       // time of the last scan on the monotonic clock
  std::vector<Watched> runs_;  // only appended to; the index of a run is its id
};

}  // namespace lockstep::watch
