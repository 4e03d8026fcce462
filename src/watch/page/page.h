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

/// Returns a file of src/watch/page/web that was embedded at build time: "index.html", "app.js",
/// "ranks.js", "app.css". Empty for other names.
std::string_view page_file(std::string_view name);

/// Returns 128 random bits as 32 hexadecimal digits.
std::string draw_token();

/// Returns the address that the user opens: "http://127.0.0.1:8000/?token=..".
std::string page_address(const std::string& address, int port, const std::string& token);

/// Request handler for the runs of several folders. Read-only. Rejects requests without the token
/// (in the query of the first visit, which sets a cookie, or as "Authorization: Bearer"), with a
/// host other than this machine's address or `address` (DNS rebinding), or from pages of other
/// origins.
class RunsPage {
 public:
  /// Serves the runs in the folders and their subfolders; requests rescan the folders. Throws Error
  /// (config) if a folder does not exist.
  RunsPage(std::vector<std::filesystem::path> folders, std::string address, std::string token);

  /// Describes the current activity of the ranks of a run on this machine, with the stacks of their
  /// threads if requested. Throws Error if the run is not training.
  using LiveRanks = std::function<std::string(const std::filesystem::path& run, bool with_stacks)>;
  /// Enables live status. A run that serves its own page leaves it disabled, because it cannot
  /// inspect itself.
  void set_live_ranks(LiveRanks live) { live_ = std::move(live); }

  /// Answers a request. Not thread-safe.
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
  double looked_ = -1e9;       // time of the last scan, steady clock
  std::vector<Watched> runs_;  // append-only: the index of a run is its id
};

}  // namespace lockstep::watch
