// TensorBoard event files: records of protobuf events framed with lengths and CRC-32C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "monitor/record.h"

namespace lockstep::monitor {

/// CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);
/// An event of a file: length, its masked checksum, the bytes, their masked checksum.
std::string tensorboard_frame(std::string_view event);
/// The first event of every file.
std::string tensorboard_version_event(double wall_time);
std::string tensorboard_scalar_event(
    double wall_time, int64_t step, std::string_view tag, double value);
std::string tensorboard_text_event(
    double wall_time, int64_t step, std::string_view tag, std::string_view text);

std::string tensorboard_histogram_event(
    double wall_time, int64_t step, std::string_view tag, const Histogram& values);

/// What the HParams plugin reads: the leaves of a JSON object by their dotted keys, at the
/// beginning of a run; and that it ended well.
std::string tensorboard_hparams_event(double wall_time, std::string_view configuration_json);
std::string tensorboard_end_event(double wall_time);

/// One event file in a folder of its own run; every run, resumed or not, opens a new one. Each
/// record is written at once. Names become tags as the Trainer's callback has it: train/loss,
/// eval/loss.
class TensorboardFile : public MetricsSink {
 public:
  /// `configuration_json`: shown as the text "args", and the hyperparameters of the HParams
  /// plugin; "" for none. Throws Error(kCheckpoint) where
  /// the file cannot be written.
  TensorboardFile(
      const std::filesystem::path& folder, double wall_time, std::string_view configuration_json);

  void log(const Record& record) override;
  void log_text(const Text& text) override;
  void log_histogram(
      int64_t step, double wall_time, const std::string& name, const Histogram& values) override;
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void write(const std::string& frames);

  File file_;
  uint64_t end_ = 0;
};

}  // namespace lockstep::monitor
