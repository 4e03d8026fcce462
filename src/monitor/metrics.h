// metrics.jsonl: one JSON object a line, for each logged step and each evaluation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "monitor/record.h"

namespace lockstep::monitor {

/// A number as JSON that reads back to the same bits: the fewest such digits, a point or an
/// exponent in every double. NaN and infinity, which JSON does not know, are null.
std::string number_text(const Number& number);
/// {"step": .., "epoch": .., values in their order}, on one line, without a newline.
std::string to_json_line(const Record& record);

/// Opens a file of lines that each have a "step", empty where `after` is 0 or less, else with those
/// up to that step; a torn last line is cut. Throws Error(kData) where it holds other lines.
File open_lines_after(const std::filesystem::path& path, int64_t after);

/// The file. Each line is written with one call, at once, so that a run that is killed loses no
/// whole line. Records of kind kSummary are not taken. Throws Error(kCheckpoint) that names the
/// file and the reason, such as a full disk.
class MetricsFile : public MetricsSink {
 public:
  /// Opens `path`: empty where `after` is 0 or less, else with what an earlier run left up to and
  /// including that step. Later lines, and a last line that was torn, are cut (the file is
  /// rewritten atomically). Throws Error(kData) where what lies there is not a metrics file.
  MetricsFile(const std::filesystem::path& path, int64_t after);

  void log(const Record& record) override;

 private:
  File file_;
  uint64_t end_;
};

}  // namespace lockstep::monitor
