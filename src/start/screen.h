// What `lockstep monitor --tui` shows, as lines of text: the terminal's library puts them there.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "watch/record/columns.h"
#include "watch/record/downsample.h"
#include "watch/record/rank_times.h"
#include "watch/record/run.h"

namespace lockstep::start {

/// A curve in braille, whose dots are 2 across and 4 down in a character: `height` lines of `width`
/// characters, the largest value above. Points are joined by lines; NaN interrupts them.
std::vector<std::string> braille_curve(
    const watch::Points& points, size_t width, size_t height, double low, double high);

/// The first `width` characters of a line of UTF-8, without what a terminal would obey.
std::string cut_to(const std::string& line, size_t width);

/// One run that is looked at.
class RunScreen {
 public:
  explicit RunScreen(const std::filesystem::path& folder);

  /// Reads what was added. `now`: seconds since 1970. `live`: what its ranks do now, as lines;
  /// empty where the run does not go on here.
  void refresh(double now, const std::string& live);
  /// The metrics that it has, the loss first.
  std::vector<std::string> metrics() const;
  /// Exactly `height` lines of at most `width` characters; `metric` is an index of metrics(), taken
  /// round. From 40 by 10 on.
  std::vector<std::string> lines(size_t width, size_t height, size_t metric) const;
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::vector<std::string> chart(size_t width, size_t height, const std::string& metric) const;
  std::vector<std::string> rank_lines(size_t width) const;

  std::filesystem::path folder_;
  watch::MetricsReader metrics_;
  watch::RankTimes ranks_;
  watch::RunSummary summary_;
  std::vector<watch::Event> events_;
  std::vector<std::string> live_;
};

}  // namespace lockstep::start
