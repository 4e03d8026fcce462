// TensorBoard event files. They contain protobuf events, each framed with its length and CRC-32C.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "monitor/record.h"

namespace lockstep::monitor {

/// Returns the CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);
/// Frames an event. The frame consists of the length, a masked checksum of the length, the bytes,
/// and a masked checksum of the bytes.
std::string tensorboard_frame(std::string_view event);
/// Returns the first event of every file.
std::string tensorboard_version_event(double wall_time);
std::string tensorboard_scalar_event(
    double wall_time, int64_t step, std::string_view tag, double value);
std::string tensorboard_text_event(
    double wall_time, int64_t step, std::string_view tag, std::string_view text);

std::string tensorboard_histogram_event(
    double wall_time, int64_t step, std::string_view tag, const Histogram& values);

/// Return events for the HParams plugin: the leaves of a JSON object at the start of a run, with
/// keys joined by dots, and the successful end of the run.
std::string tensorboard_hparams_event(double wall_time, std::string_view configuration_json);
std::string tensorboard_end_event(double wall_time);

/// Event file of an attempt. A resumed run creates another file in another folder. Each record is
/// written immediately. Tags are those of the Trainer's callback: train/loss, eval/loss.
class TensorboardFile : public MetricsSink {
 public:
  /// `configuration_json` is logged as the text "args" and as hyperparameters for the HParams
  /// plugin. It may be empty. Throws Error (checkpoint) if the file is not writable.
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
