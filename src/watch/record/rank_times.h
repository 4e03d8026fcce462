// What ranks.jsonl tells (monitor/rank_file.h), thinned out for a picture, and read on while the
// run writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/rank_file.h"

namespace lockstep::watch {

class RankTimes {
 public:
  /// A file that is not there is an empty one.
  explicit RankTimes(std::filesystem::path path) : path_(std::move(path)) {}

  /// Reads the whole lines that were added; all anew where the file was cut or made anew. Lines
  /// that are none of this file are passed over. Throws Error (data) where it cannot be read.
  void refresh();

  /// In order of steps, at most kMost: neighbours are made one where there would be more. Of the
  /// ranks that the run has now: what fewer or more of them did before a restart is left out.
  const std::vector<monitor::RankShares>& lines() const { return lines_; }
  static constexpr size_t kMost = 128;

  /// monitor::usual_compute() of these lines.
  std::vector<double> usual_compute() const;
  /// The last lines as one; no steps where there is none.
  monitor::RankShares lately() const;
  /// {"ranks": n, "steps": [..], "step_s": [[.. of each line] of each rank], ..., "slow": which
  /// rank lately was}.
  std::string json() const;

 private:
  void take(std::string_view line);

  std::filesystem::path path_;
  std::vector<monitor::RankShares> lines_;
  uint64_t end_ = 0;                  // bytes taken
  std::string last_;                  // the last of them
  int64_t stride_ = 1, waiting_ = 0;  // lines of the file that one of ours is made of, and so far
};

}  // namespace lockstep::watch
