// Weights & Biases' offline runs: a folder that `wandb sync` uploads later. Nothing is sent from
// here.
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

/// What names the run there. Empty texts are left out.
struct WandbOptions {
  std::filesystem::path folder{};      // wandb/offline-run-... is made in it
  std::filesystem::path run_folder{};  // keeps wandb.json and the checkpoints; empty: neither
  std::string run_id{};                // empty: wandb.json's of a run that goes on, else drawn
  std::string project{};
  std::string entity{};
  std::string name{};
  std::string group{};
  std::string job_type{};
  std::string notes{};
  std::vector<std::string> tags{};
  std::string configuration_json{};  // an object: each of its keys becomes one of the run's
  double start_time = 0;             // seconds since 1970
  bool resumed = false;              // the run of wandb.json goes on, if there is one
  int64_t first_row = 0;             // rows that its earlier attempts have; found for a resumed one
  bool must_resume = false;          // it is an error if there is none
  bool of_ranks = false;             // a run of each rank too, in the group of this one
  enum class Artifacts { kNone, kLast, kAll } artifacts = Artifacts::kNone;  // of checkpoints
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

/// One attempt at a run: a run that goes on has a folder for each of its attempts, under one id.
class WandbRun : public MetricsSink {
 public:
  /// Throws Error(kCheckpoint) where the files cannot be written, Error(kConfig) where an option
  /// does not fit.
  explicit WandbRun(WandbOptions options);

  void log(const Record& record) override;
  void log_text(const Text& text) override;
  /// With of_ranks: of each rank as a run of its own, <id>-rank<number>.
  void log_ranks(const RankShares& shares, double wall_time) override;
  void log_event(std::string_view name, double wall_time) override;
  void finish() override;
  /// wandb/offline-run-<time>-<id>
  const std::filesystem::path& folder() const { return folder_; }
  /// Whether `wandb sync` has to add this to what an earlier attempt sent.
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
  std::map<std::string, std::string> summary_;    // the last value of each name, as JSON
  std::vector<std::unique_ptr<WandbRun>> ranks_;  // begun with their first numbers
  std::vector<int64_t> artifacts_;                // the steps of the checkpoints that are some
  bool ended_ = false;
};

/// The options that WANDB_PROJECT, WANDB_ENTITY, WANDB_RUN_ID, WANDB_NAME, WANDB_RUN_GROUP,
/// WANDB_JOB_TYPE, WANDB_NOTES, WANDB_TAGS, WANDB_DIR, WANDB_RESUME and WANDB_LOG_MODEL set, over
/// those given. WANDB_API_KEY is never read. Nothing where WANDB_MODE or WANDB_DISABLED turn the
/// tracker off. Throws Error(kConfig) where a value is none that is known.
std::optional<WandbOptions> wandb_options_from_environment(
    WandbOptions options, const std::map<std::string, std::string>& environment);

}  // namespace lockstep::monitor
