// metrics.jsonl: one JSON object per line for each logged step and each evaluation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "monitor/line_file.h"
#include "monitor/record.h"

namespace lockstep::monitor {

/// Formats a number as JSON with the fewest digits that read back to the same bits. Every double
/// has a decimal point or an exponent. NaN and infinity become null.
std::string number_text(const Number& number);
/// Returns {"step": .., "epoch": .., values in order} on one line, without a newline.
std::string to_json_line(const Record& record);

/// Writer of metrics.jsonl. Records of kind kSummary are ignored. Throws Error (checkpoint) as
/// LineFile.
class MetricsFile : public MetricsSink {
 public:
  /// Opens `path` as LineFile::after_step().
  MetricsFile(const std::filesystem::path& path, int64_t after);

  void log(const Record& record) override;

 private:
  LineFile file_;
};

}  // namespace lockstep::monitor
