// Content of `lockstep monitor --tui` as lines of text. terminal.cpp shows them.
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

/// Returns a curve as `height` lines of `width` braille characters with 2 x 4 dots each. The
/// maximum is at the top. Points are connected; NaN interrupts the line.
std::vector<std::string> braille_curve(
    const watch::Points& points, size_t width, size_t height, double low, double high);

/// Returns the first `width` characters of a UTF-8 line, without terminal control sequences.
std::string cut_to(const std::string& line, size_t width);

/// Screen for one run.
class RunScreen {
 public:
  explicit RunScreen(const std::filesystem::path& folder);

  /// Reads new records. `now` is in seconds since 1970. `live` contains lines about the current
  /// state of the run's ranks; empty if the run is not active on this machine.
  void refresh(double now, const std::string& live);
  /// Returns the names of the run's metrics, starting with the loss.
  std::vector<std::string> metrics() const;
  /// Returns exactly `height` lines of at most `width` characters. `metric` is an index in
  /// metrics(), modulo its size. `width` must be at least 40 and `height` at least 10.
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
