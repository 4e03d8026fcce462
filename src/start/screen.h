// Content of `lockstep monitor --tui` as lines of text; terminal.cpp draws them.
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

/// A curve in braille characters (2 x 4 dots each): `height` lines of `width` characters, maximum
/// at the top. Points are connected; NaN interrupts the line.
std::vector<std::string> braille_curve(
    const watch::Points& points, size_t width, size_t height, double low, double high);

/// The first `width` characters of a UTF-8 line, without terminal control sequences.
std::string cut_to(const std::string& line, size_t width);

/// Screen of one run.
class RunScreen {
 public:
  explicit RunScreen(const std::filesystem::path& folder);

  /// Reads new records. `now`: seconds since 1970. `live`: the current state of its ranks as lines;
  /// empty if the run is not active on this machine.
  void refresh(double now, const std::string& live);
  /// Names of the run's metrics, the loss first.
  std::vector<std::string> metrics() const;
  /// Exactly `height` lines of at most `width` characters; `metric` is an index of metrics(),
  /// modulo its size. Requires at least 40 by 10.
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
