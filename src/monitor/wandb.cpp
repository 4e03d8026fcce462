// Writes offline runs for Weights & Biases.
#include "monitor/wandb.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>
#include <zlib.h>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/json_lines.h"
#include "base/log.h"
#include "monitor/checkpoints.h"
#include "monitor/metrics.h"
#include "monitor/protobuf.h"
#include "monitor/rank_file.h"
#include "monitor/trackers.h"
#include "monitor/wandb_artifact.h"

namespace lockstep::monitor {
namespace {

// Field numbers of wandb's Record message.
constexpr int kRecordNumber = 1;
constexpr int kHistory = 2;
constexpr int kSummary = 3;
constexpr int kArtifact = 8;
constexpr int kMetric = 12;
constexpr int kRun = 17;
constexpr int kExit = 18;
constexpr int kFinal = 20;
constexpr int kHeader = 21;
constexpr int kFooter = 22;
constexpr int kPreempting = 23;
constexpr int kInfo = 200;

constexpr const char* kState = "wandb.json";
constexpr std::string_view kGlobalStep = "train/global_step";
constexpr int kExitFailed = 1, kExitStopped = 75;

constexpr uint64_t kBlock = 32768;
constexpr std::string_view kFileHeader{":W&B\xe1\xbe\x00", 7};  // magic 0xbee1, version 0
constexpr uint64_t kFragmentHeader = 7;

/// Formats a number in Python's JSON, which wandb expects, with NaN and Infinity.
std::string wandb_number(const Number& number) {
  const double value = as_double(number);
  if (std::isnan(value)) {
    return "NaN";
  }
  return std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity") : number_text(number);
}

/// Throws Error (config) if the id is not valid as part of a file name.
void check_run_id(const std::string& id) {
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (!plain || id.size() > 64 || id.starts_with('.')) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "the run id '{}' contains characters other than letters, digits, '_', '-' and '.'", id),
        "change WANDB_RUN_ID");
  }
}

/// Returns the message {2 nested_key, 16 value_json}.
ProtobufMessage item(std::string_view name, std::string_view json) {
  ProtobufMessage message;
  message.text(2, name).text(16, json);
  return message;
}

/// Returns the message that describes the run. `rows` is the number of rows that earlier attempts
/// logged.
ProtobufMessage run_message(const WandbOptions& options, int64_t rows) {
  ProtobufMessage run;
  run.text(1, options.run_id);
  const auto add = [&run](int field, const std::string& text) {
    if (!text.empty()) {
      run.text(field, text);
    }
  };
  add(2, options.entity);
  add(3, options.project);
  if (!options.configuration_json.empty()) {
    ProtobufMessage config;
    const nlohmann::json values = parse_json(options.configuration_json, "the configuration");
    for (const auto& [key, value] : values.items()) {
      ProtobufMessage update;
      update.text(1, key).text(16, value.dump());
      config.message(1, update);
    }
    run.message(4, config);
  }
  add(6, options.group);
  add(7, options.job_type);
  add(8, options.name);
  add(9, options.notes);
  for (const std::string& tag : options.tags) {
    add(10, tag);
  }
  add(13, host_name());
  const double whole = std::floor(options.start_time);
  ProtobufMessage time;
  time.whole(1, static_cast<int64_t>(whole));
  time.whole(2, static_cast<int64_t>((options.start_time - whole) * 1e9));
  if (options.resumed) {
    run.whole(14, rows);
  }
  run.message(17, time);
  if (options.resumed) {
    run.whole(18, 1);
  }
  return run;
}

std::filesystem::path make_folder(const WandbOptions& options) {
  check_run_id(options.run_id);
  // Two attempts in the same second need different folders. `wandb sync` parses the time up to the
  // first '-', so increase the time.
  double time = options.start_time;
  const auto name = [&] {
    return options.folder / "wandb" /
           fmt::format("offline-run-{}-{}", format_time("%Y%m%d_%H%M%S", time), options.run_id);
  };
  while (std::filesystem::exists(name())) {
    time += 1;
  }
  const std::filesystem::path folder = name();
  create_folders(folder / "files");
  create_folders(folder / "logs");
  return folder;
}

/// Makes wandb/latest-run a link to the newest run.
void point_latest(const std::filesystem::path& folder) {
  std::error_code ignored;  // optional: some file systems do not support links
  const auto link = folder.parent_path() / "latest-run";
  if (std::filesystem::is_symlink(link, ignored)) {
    std::filesystem::remove(link, ignored);
  }
  std::filesystem::create_directory_symlink(folder.filename(), link, ignored);
}

/// State of an earlier attempt, as stored in wandb.json.
struct Kept {
  std::string run_id, group;
  int64_t rows = 0;
};

std::optional<Kept> read_in_memory(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) {
    return std::nullopt;
  }
  const nlohmann::json json = parse_json_line(read_file(path));
  const std::string run_id = text_at(json, "run_id");
  if (run_id.empty()) {
    return std::nullopt;
  }
  const auto rows = json.find("rows");
  return Kept{
      run_id,
      text_at(json, "group"),
      rows != json.end() && rows->is_number_integer() ? rows->get<int64_t>() : 0};
}

/// Returns the options with id and group: those of the run to resume if there is one, otherwise new
/// ones.
WandbOptions settled(WandbOptions options) {
  std::optional<Kept> kept;
  if (!options.run_folder.empty()) {
    kept = options.resumed ? read_in_memory(options.run_folder / kState) : std::nullopt;
    options.resumed = kept && (options.run_id.empty() || options.run_id == kept->run_id);
  }
  if (options.must_resume && !options.resumed) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "WANDB_RESUME=must, but {} names no run to resume",
            (options.run_folder / kState).string()),
        "resume from a checkpoint of a run with report_to=wandb, or unset WANDB_RESUME");
  }
  if (kept && options.resumed) {
    options.run_id = kept->run_id;
    options.group = options.group.empty() ? kept->group : options.group;
    options.first_row = kept->rows;
  }
  if (options.run_id.empty()) {
    options.run_id = draw_wandb_id(8);
  }
  if (options.of_ranks && options.group.empty()) {
    options.group =
        options.name.empty() ? options.run_id : fmt::format("{}-{}", options.name, options.run_id);
  }
  return options;
}

std::vector<std::string> split_tags(const std::string& text) {
  std::vector<std::string> tags;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) {
      tags.push_back(text.substr(begin, end - begin));
    }
    begin = end + 1;
  }
  return tags;
}

}  // namespace

WandbLog::WandbLog(const std::filesystem::path& path)
    : file_(path, File::Mode::kCreate),
      end_(kFileHeader.size()) {
  file_.write_at(0, std::as_bytes(std::span(kFileHeader)));
}

void WandbLog::append(std::string_view record) {
  enum FragmentType : char { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
  std::string bytes;
  bool first = true;
  while (first || !record.empty()) {
    uint64_t room = kBlock - (end_ + bytes.size()) % kBlock;
    if (room < kFragmentHeader) {
      bytes.append(room, '\0');
      room = kBlock;
    }
    const std::string_view part = record.substr(0, room - kFragmentHeader);
    record.remove_prefix(part.size());
    const char type =
        first ? (record.empty() ? kFull : kFirst) : (record.empty() ? kLast : kMiddle);
    first = false;
    const std::string checked = type + std::string(part);
    const auto crc = static_cast<uint32_t>(::crc32(
        0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())));
    for (int i = 0; i < 4; ++i) {
      bytes += static_cast<char>(crc >> (8 * i));
    }
    bytes += static_cast<char>(part.size());
    bytes += static_cast<char>(part.size() >> 8);
    bytes += checked;
  }
  file_.write_at(end_, std::as_bytes(std::span(bytes)));
  end_ += bytes.size();
}

WandbRun::WandbRun(WandbOptions options)
    : options_(settled(std::move(options))),
      last_time_(options_.start_time),
      folder_(make_folder(options_)),
      log_(folder_ / fmt::format("run-{}.wandb", options_.run_id)),
      rows_(options_.first_row) {
  ProtobufMessage version;
  version.text(1, "0.31.0").text(2, "0.70.0");  // wandb versions that support all fields used here
  ProtobufMessage header;
  header.message(1, version);
  append(kHeader, header);
  append(kRun, run_message(options_, rows_));
  if (!options_.run_folder.empty()) {
    state_.emplace(options_.run_folder / kState, File::Mode::kCreate);
    keep_state();
    point_latest(folder_);
    artifacts_ = checkpoints_of(options_.run_folder);  // an earlier attempt has reported them
  }
}

void WandbRun::append(int field, const ProtobufMessage& body) {
  ProtobufMessage info;
  info.text(1, options_.run_id);
  ProtobufMessage record;
  record.whole(kRecordNumber, ++records_).message(field, body).message(kInfo, info);
  log_.append(record.bytes());
}

/// Overwrites wandb.json in place after each row. Its length is constant.
void WandbRun::keep_state() {
  if (state_) {
    const std::string text = fmt::format(
        "{{\"run_id\": {}, \"group\": {}, \"rows\": {:20}}}\n",
        nlohmann::json(options_.run_id).dump(),
        nlohmann::json(options_.group).dump(),
        rows_);
    state_->write_at(0, std::as_bytes(std::span(text)));
  }
}

/// Defines a metric whose x-axis is the training step.
void WandbRun::define_metric(const std::string& name) {
  if (name.starts_with('_')) {
    return;
  }
  ProtobufMessage metric, settings;
  metric.text(1, name);
  if (name != kGlobalStep) {
    metric.text(4, kGlobalStep);
    settings.whole(1, 1);
  }
  metric.message(6, settings.whole(3, 1));
  append(kMetric, metric);
}

void WandbRun::append_row(const Items& items, double wall_time) {
  last_time_ = wall_time;
  // Each record gets its own row, because an evaluation has the same step as the preceding training
  // record.
  const int64_t row = rows_++;
  keep_state();
  Items all = items;
  all.emplace_back("_step", std::to_string(row));
  all.emplace_back("_timestamp", number_text(wall_time));
  all.emplace_back("_runtime", number_text(wall_time - options_.start_time));
  ProtobufMessage history;
  for (const auto& [name, json] : all) {
    history.message(1, item(name, json));
    const auto [found, is_new] = summary_.insert_or_assign(name, json);
    if (is_new) {
      define_metric(name);
    }
  }
  ProtobufMessage step;
  step.whole(1, row);
  history.message(2, step);
  append(kHistory, history);
}

void WandbRun::log(const Record& record) {
  epoch_ = record.epoch;
  Items items{
      {std::string(kGlobalStep), std::to_string(record.step)},
      {"train/epoch", wandb_number(record.epoch)}};
  for (const auto& [name, number] : record.values) {
    items.emplace_back(tracker_name(name), wandb_number(number));
  }
  append_row(items, record.wall_time);
  add_artifacts(/*is_end=*/false);
}

void WandbRun::log_text(const Text& text) {
  append_row(
      {{std::string(kGlobalStep), std::to_string(text.step)},
       {text.name,
        nlohmann::json(text.text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}},
      text.wall_time);
}

void WandbRun::log_ranks(const RankShares& shares, double wall_time) {
  if (!options_.of_ranks) {
    return;
  }
  for (size_t rank = 0; rank < shares.step_s.size(); ++rank) {
    if (rank == ranks_.size()) {
      WandbOptions options = options_;
      options.run_folder.clear();
      options.first_row = rows_;
      options.run_id += fmt::format("-rank{}", rank);
      options.name =
          fmt::format("{}-rank{}", options_.name.empty() ? options_.run_id : options_.name, rank);
      options.job_type = "rank";
      options.configuration_json = fmt::format("{{\"rank\": {}}}", rank);
      options.of_ranks = options.must_resume = false;
      ranks_.push_back(std::make_unique<WandbRun>(options));
    }
    ranks_[rank]->log(
        {.step = shares.step,
         .epoch = epoch_,
         .wall_time = wall_time,
         .values = {
             {"step_s", shares.step_s[rank]},
             {"data_wait_s", shares.data_wait_s[rank]},
             {"communication_wait_s", shares.communication_wait_s[rank]},
             {"memory_bytes", shares.memory_bytes[rank]}}});
  }
}

/// Adds checkpoints that are complete now. A checkpoint that is written in the background may get
/// its final name later.
void WandbRun::add_artifacts(bool is_end) {
  using Artifacts = WandbOptions::Artifacts;
  if (options_.run_folder.empty() || !(options_.artifacts == Artifacts::kAll ||
                                       (is_end && options_.artifacts == Artifacts::kLast))) {
    return;
  }
  std::vector<int64_t> steps = checkpoints_of(options_.run_folder);
  if (options_.artifacts == Artifacts::kLast && steps.size() > 1) {
    steps = {steps.back()};
  }
  std::erase_if(
      steps, [&](int64_t step) { return std::ranges::find(artifacts_, step) != artifacts_.end(); });
  if (steps.empty()) {
    return;
  }
  nlohmann::ordered_json metadata = nlohmann::ordered_json::object();
  for (const auto& [name, json] : summary_) {
    const auto value = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
    if (value.is_number() && !name.starts_with('_')) {
      metadata[name] = value;
    }
  }
  for (const int64_t step : steps) {
    artifacts_.push_back(step);
    const std::string checkpoint = fmt::format("checkpoint-{}", step);
    try {
      append(
          kArtifact,
          checkpoint_artifact(
              {.run_id = options_.run_id,
               .project = options_.project,
               .entity = options_.entity,
               .name = options_.name.empty() ? options_.run_id : options_.name,
               .metadata_json = metadata.dump(),
               .aliases =
                   {"latest",
                    fmt::format("epoch_{}", std::round(epoch_ * 100) / 100),
                    fmt::format("checkpoint_global_step_{}", step)},
               .checkpoint = options_.run_folder / checkpoint,
               .kept = folder_ / "artifacts" / checkpoint}));
    } catch (const Error& error) {
      log_warning("wandb: {} is not logged as an artifact: {}", checkpoint, error.what());
    }
  }
}

void WandbRun::log_event(std::string_view name, double wall_time) {
  last_time_ = std::max(last_time_, wall_time);
  if (name == "stopped" || name == "failed") {
    if (name == "stopped") {
      append(kPreempting, {});  // the run will be resumed
    }
    end(name == "stopped" ? kExitStopped : kExitFailed);
  }
}

void WandbRun::finish() {
  end(0);
}

void WandbRun::end(int exit_code) {
  if (std::exchange(ended_, true)) {
    return;
  }
  add_artifacts(/*is_end=*/true);
  for (const auto& rank : ranks_) {
    rank->end(exit_code);
  }
  ProtobufMessage summary;
  nlohmann::ordered_json file;
  for (const auto& [name, json] : summary_) {
    summary.message(1, item(name, json));
    file[name] = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
    if (file[name].is_discarded()) {
      file[name] = json;  // not valid JSON, such as NaN
    }
  }
  append(kSummary, summary);
  ProtobufMessage exit;
  exit.whole(1, exit_code).whole(2, static_cast<int64_t>(last_time_ - options_.start_time));
  append(kExit, exit);
  append(kFinal, {});  // without it, `wandb sync` does not upload the exit code
  append(kFooter, {});
  write_file_atomically(folder_ / "files" / "wandb-summary.json", file.dump() + "\n");
}

std::optional<WandbOptions> wandb_options_from_environment(
    WandbOptions options, const std::map<std::string, std::string>& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  const std::string mode = value("WANDB_MODE");
  const std::string disabled = value("WANDB_DISABLED");
  if (mode == "disabled" || disabled == "true" || disabled == "1" || disabled == "True") {
    return std::nullopt;
  }
  const auto set = [&](const char* name, std::string& option) {
    if (const std::string text = value(name); !text.empty()) {
      option = text;
    }
  };
  set("WANDB_PROJECT", options.project);
  set("WANDB_ENTITY", options.entity);
  set("WANDB_RUN_ID", options.run_id);
  set("WANDB_NAME", options.name);
  set("WANDB_RUN_GROUP", options.group);
  set("WANDB_JOB_TYPE", options.job_type);
  set("WANDB_NOTES", options.notes);
  if (const std::string folder = value("WANDB_DIR"); !folder.empty()) {
    options.folder = folder;
  }
  if (const std::string tags = value("WANDB_TAGS"); !tags.empty()) {
    options.tags = split_tags(tags);
  }
  const std::string resume = value("WANDB_RESUME");
  options.resumed = options.resumed && resume != "never";
  options.must_resume = resume == "must";
  // Values that the Trainer's callback accepts.
  using Artifacts = WandbOptions::Artifacts;
  const std::map<std::string, Artifacts> artifacts{
      {"", Artifacts::kNone},
      {"false", Artifacts::kNone},
      {"true", Artifacts::kLast},
      {"end", Artifacts::kLast},
      {"checkpoint", Artifacts::kAll}};
  const auto wanted = artifacts.find(value("WANDB_LOG_MODEL"));
  if (wanted == artifacts.end()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("WANDB_LOG_MODEL is '{}'", value("WANDB_LOG_MODEL")),
        "set it to false, end (the last checkpoint) or checkpoint (all)");
  }
  options.artifacts = wanted->second;
  return options;
}

}  // namespace lockstep::monitor
