// metrics.jsonl: one JSON object per line for each logged step and each evaluation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "monitor/record.h"

namespace lockstep::monitor {

/// Formats a number as JSON with the fewest digits that read back to the same bits. Every double
/// has a decimal point or an exponent. NaN and infinity become null.
std::string number_text(const Number& number);
/// Returns {"step": .., "epoch": .., values in order} on one line, without a newline.
std::string to_json_line(const Record& record);

/// Opens a file whose lines each have a "step". Keeps the lines up to step `after`, or none if it
/// is 0 or less; drops an incomplete last line. Throws Error (data) if the file contains other
/// lines.
File open_lines_after(const std::filesystem::path& path, int64_t after);

/// Writer of metrics.jsonl. Each line is written immediately in one call, so a killed run loses no
/// complete line. Ignores records of kind kSummary. Write errors, such as a full disk, throw Error
/// (checkpoint) with the name of the file and the reason.
class MetricsFile : public MetricsSink {
 public:
  /// Opens `path`. Keeps the lines of an earlier run up to and including step `after`, or none if
  /// it is 0 or less. Later lines and an incomplete last line are removed by rewriting the file
  /// atomically. Throws Error (data) if the file is not a metrics file.
  MetricsFile(const std::filesystem::path& path, int64_t after);

  void log(const Record& record) override;

 private:
  File file_;
  uint64_t end_;
};

}  // namespace lockstep::monitor
