// Weights & Biases' offline runs: a folder that `wandb sync` uploads later. Nothing is sent from
// here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "monitor/protobuf.h"
#include "monitor/record.h"

namespace lockstep::monitor {

/// What names the run there. Empty texts are left out.
struct WandbOptions {
  std::filesystem::path folder{};  // wandb/offline-run-... is made in it
  std::string run_id{};            // 8 characters of a-z and 0-9; empty: drawn
  std::string project{};
  std::string entity{};
  std::string name{};
  std::string group{};
  std::string job_type{};
  std::string notes{};
  std::vector<std::string> tags{};
  std::string configuration_json{};  // an object: each of its keys becomes one of the run's
  double start_time = 0;             // seconds since 1970
};

/// The .wandb file: records in a LevelDB log of 32 KiB blocks, each with its CRC-32.
class WandbLog {
 public:
  explicit WandbLog(const std::filesystem::path& path);
  /// Written at once.
  void append(std::string_view record);

 private:
  File file_;
  uint64_t end_;
};

/// One run.
class WandbRun : public MetricsSink {
 public:
  /// Throws Error(kCheckpoint) where the files cannot be written, Error(kConfig) where an option
  /// does not fit.
  explicit WandbRun(const WandbOptions& options);

  void log(const Record& record) override;
  void log_text(const Text& text) override;
  void finish() override;
  /// wandb/offline-run-<time>-<id>
  const std::filesystem::path& folder() const { return folder_; }

 private:
  void append(int field, const ProtobufMessage& body);

  std::string run_id_;
  double start_time_, last_time_;
  std::filesystem::path folder_;
  WandbLog log_;
  int64_t records_ = 0, rows_ = 0;
  std::map<std::string, std::string> summary_;  // the last value of each name, as JSON
};

/// The options that WANDB_PROJECT, WANDB_ENTITY, WANDB_RUN_ID, WANDB_NAME, WANDB_RUN_GROUP,
/// WANDB_JOB_TYPE, WANDB_NOTES, WANDB_TAGS and WANDB_DIR set, over those given. WANDB_API_KEY is
/// never read. Nothing where WANDB_MODE or WANDB_DISABLED turn the tracker off.
std::optional<WandbOptions> wandb_options_from_environment(
    WandbOptions options, const std::map<std::string, std::string>& environment);

}  // namespace lockstep::monitor
