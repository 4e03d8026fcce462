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
/// Frames an event: length, masked checksum of the length, bytes, masked checksum of the bytes.
std::string tensorboard_frame(std::string_view event);
/// Returns the first event of every file.
std::string tensorboard_version_event(double wall_time);
std::string tensorboard_scalar_event(
    double wall_time, int64_t step, std::string_view tag, double value);
std::string tensorboard_text_event(
    double wall_time, int64_t step, std::string_view tag, std::string_view text);

std::string tensorboard_histogram_event(
    double wall_time, int64_t step, std::string_view tag, const Histogram& values);

/// Events of the HParams plugin: the leaves of a JSON object by dotted key at the start of a run,
/// and the successful end of the run.
std::string tensorboard_hparams_event(double wall_time, std::string_view configuration_json);
std::string tensorboard_end_event(double wall_time);

/// Event file of one attempt; resumed runs create a new file in a new folder. Each record is
/// written immediately. Tags follow the Trainer's callback: train/loss, eval/loss.
class TensorboardFile : public MetricsSink {
 public:
  /// `configuration_json`: logged as the text "args" and as hyperparameters of the HParams plugin;
  /// may be empty. Throws Error (checkpoint) if the file is not writable.
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
