// Reads metrics.jsonl into columns. The file may still be written; reading is as fast as the
// memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "watch/record/growing_file.h"

namespace lockstep::watch {

/// Values of a metric over a run, ordered by step. null in the file becomes NaN.
struct Series {
  std::vector<int64_t> steps;
  std::vector<double> values;  // same length as steps
  size_t size() const { return steps.size(); }
};

/// Reads a metrics.jsonl that may grow.
class MetricsReader {
 public:
  static constexpr uintmax_t kLong = uintmax_t{64} << 20;  // bytes

  /// A missing file is treated as empty. If the file has at least `long_from` bytes, look() reads
  /// it in the background.
  explicit MetricsReader(std::filesystem::path path, uintmax_t long_from = kLong)
      : file_(std::move(path)),
        long_from_(long_from) {}

  /// Reads the complete lines added since the last call. If the file was truncated or created
  /// again, as after a resume, reads the whole file. An incomplete last line is left for the next
  /// call. Lines that are not flat JSON objects with an integer "step" are counted and skipped.
  /// Returns true if anything changed. Throws Error (data) if the file cannot be read.
  bool refresh();
  /// Like refresh(), but returns quickly: a long file is first read on a background thread. Until
  /// this has finished, the series contain a regular sample of the lines, and the last line.
  bool look();
  /// Returns true if the series contain only a sample of the lines.
  bool is_partial() const { return whole_.valid(); }

  /// Returns the series by metric name, without "step".
  const std::map<std::string, Series>& series() const { return series_; }
  /// Returns the series with this name, or an empty one.
  const Series& find(const std::string& name) const;
  int64_t bad_lines() const { return bad_lines_; }
  /// Returns the last step of any line, or 0 if there are no lines.
  int64_t last_step() const { return last_step_; }

 private:
  void take(std::string_view lines);
  void take_some();

  GrowingFile file_;
  uintmax_t long_from_;
  std::future<std::unique_ptr<MetricsReader>> whole_;  // valid while series_ contains a sample
  std::map<std::string, Series> series_;
  int64_t bad_lines_ = 0, last_step_ = 0;
};

}  // namespace lockstep::watch
