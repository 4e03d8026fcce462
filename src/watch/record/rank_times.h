// Reads a ranks.jsonl (monitor/rank_file.h) that may grow, and reduces it for plots.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/rank_file.h"
#include "watch/record/growing_file.h"

namespace lockstep::watch {

class RankTimes {
 public:
  /// A missing file counts as empty.
  explicit RankTimes(std::filesystem::path path) : file_(std::move(path)) {}

  /// Reads the complete lines added since the last call. If the file was truncated or created
  /// again, reads the whole file. Skips invalid lines. Throws Error (data) if the file cannot be
  /// read.
  void refresh();

  /// Returns the entries, ordered by step. If there would be more than kMost, adjacent ones are
  /// merged. If the number of ranks changes after a restart, earlier entries are dropped.
  const std::vector<monitor::RankShares>& lines() const { return lines_; }
  static constexpr size_t kMost = 128;

  /// Returns monitor::usual_compute() of these entries.
  std::vector<double> usual_compute() const;
  /// Returns the most recent entries, merged into one. If there are none, `steps` is 0.
  monitor::RankShares lately() const;
  /// Returns {"ranks": n, "steps": [..], "step_s": [per rank: [per entry]], ..., "slow":
  /// description of the current straggler}.
  std::string json() const;

 private:
  void take(std::string_view line);

  GrowingFile file_;
  std::vector<monitor::RankShares> lines_;
  int64_t stride_ = 1,
          waiting_ = 0;  // lines of the file per entry, and lines merged into the last entry
};

}  // namespace lockstep::watch
