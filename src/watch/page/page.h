// The page of runs: what `lockstep monitor` serves, for a browser on this machine.
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

/// A file of the page, as it lies in src/watch/page/web when the program is built: "index.html",
/// "app.js", "ranks.js", "app.css". Empty where there is none of that name.
std::string_view page_file(std::string_view name);

/// 128 random bits, as 32 hexadecimal digits.
std::string draw_token();

/// "http://127.0.0.1:8000/?token=..": what a user opens.
std::string page_address(const std::string& address, int port, const std::string& token);

/// Answers for some folders' runs. Nothing is answered to who does not know the token (in the
/// query of the first visit, which puts it into a cookie, or as "Authorization: Bearer"), who
/// speaks to a host that is neither this machine's address nor `address` (names that others make
/// resolve to it), or who comes from another site's page. It reads, and writes nothing.
class RunsPage {
 public:
  /// Runs are those at and below the folders, looked for anew as it is asked. Throws Error (config)
  /// where there is no such folder.
  RunsPage(std::vector<std::filesystem::path> folders, std::string address, std::string token);

  /// What the ranks of a run that trains on this machine do now, as a text for people; with the
  /// stacks of their threads where asked. Throws Error where none train.
  using LiveRanks = std::function<std::string(const std::filesystem::path& run, bool with_stacks)>;
  /// Without it nothing live is told: a run that serves its own page would have to look at itself.
  void set_live_ranks(LiveRanks live) { live_ = std::move(live); }

  /// One at a time.
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
  double looked_ = -1e9;       // steady clock
  std::vector<Watched> runs_;  // a run keeps its place, which is its id
};

}  // namespace lockstep::watch
