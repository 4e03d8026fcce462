// Offline runs for Weights & Biases. A run is a folder, which `wandb sync` uploads later. Nothing
// is sent during training.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "monitor/protobuf.h"
#include "monitor/record.h"

namespace lockstep::monitor {

/// Settings of a W&B run. Empty strings are omitted.
struct WandbOptions {
  std::filesystem::path folder{};      // parent of wandb/offline-run-...
  std::filesystem::path run_folder{};  // folder with wandb.json and the checkpoints; may be empty
  std::string run_id{};                // empty: that of wandb.json if resumed, otherwise random
  std::string project{};
  std::string entity{};
  std::string name{};
  std::string group{};
  std::string job_type{};
  std::string notes{};
  std::vector<std::string> tags{};
  std::string configuration_json{};  // an object; its keys become the run's config
  double start_time = 0;             // seconds since 1970
  bool resumed = false;              // continue the run of wandb.json, if any
  int64_t first_row = 0;     // rows logged by earlier attempts; set automatically if resumed
  bool must_resume = false;  // throw Error if there is no run to resume
  bool of_ranks = false;     // also create a run per rank, in the same group
  enum class Artifacts {
    kNone,
    kLast,
    kAll
  } artifacts = Artifacts::kNone;  // checkpoints to log as artifacts
};

/// Writer of a .wandb file. This is a LevelDB log of 32 KiB blocks whose records have CRC-32
/// checksums.
class WandbLog {
 public:
  explicit WandbLog(const std::filesystem::path& path);
  /// Writes the record immediately.
  void append(std::string_view record);

 private:
  File file_;
  uint64_t end_;
};

/// An attempt of a run. A resumed run has one folder per attempt, all with the same run id.
class WandbRun : public MetricsSink {
 public:
  /// Throws Error (checkpoint) if the files are not writable, and Error (config) if an option is
  /// invalid.
  explicit WandbRun(WandbOptions options);

  void log(const Record& record) override;
  void log_text(const Text& text) override;
  /// With of_ranks, logs each rank as a separate run named <id>-rank<number>.
  void log_ranks(const RankShares& shares, double wall_time) override;
  void log_event(std::string_view name, double wall_time) override;
  void finish() override;
  /// Returns wandb/offline-run-<time>-<id>.
  const std::filesystem::path& folder() const { return folder_; }
  /// Returns true if `wandb sync` must append this attempt to an earlier one.
  bool goes_on() const { return options_.resumed; }

 private:
  using Items = std::vector<std::pair<std::string, std::string>>;  // names, and values as JSON
  void append(int field, const ProtobufMessage& body);
  void append_row(const Items& items, double wall_time);
  void define_metric(const std::string& name);
  void keep_state();
  void add_artifacts(bool is_end);
  void end(int exit_code);

  WandbOptions options_;
  double last_time_, epoch_ = 0;
  std::filesystem::path folder_;
  WandbLog log_;
  std::optional<File> state_;  // wandb.json
  int64_t records_ = 0, rows_ = 0;
  std::map<std::string, std::string> summary_;    // latest value of each name, as JSON
  std::vector<std::unique_ptr<WandbRun>> ranks_;  // created when their first values arrive
  std::vector<int64_t> artifacts_;                // steps of the checkpoints already logged
  bool ended_ = false;
};

/// Returns `options` with the settings of WANDB_PROJECT, WANDB_ENTITY, WANDB_RUN_ID, WANDB_NAME,
/// WANDB_RUN_GROUP, WANDB_JOB_TYPE, WANDB_NOTES, WANDB_TAGS, WANDB_DIR, WANDB_RESUME and
/// WANDB_LOG_MODEL. WANDB_API_KEY is never read. Returns nullopt if WANDB_MODE or WANDB_DISABLED
/// disables the tracker. Throws Error (config) if a value is unknown.
std::optional<WandbOptions> wandb_options_from_environment(
    WandbOptions options, const std::map<std::string, std::string>& environment);

}  // namespace lockstep::monitor
