#include "monitor/wandb.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>

#include <nlohmann/json.hpp>
#include <zlib.h>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "monitor/metrics.h"
#include "monitor/protobuf.h"
#include "monitor/trackers.h"

namespace lockstep::monitor {
namespace {

// Fields of wandb's Record, by its protocol's numbers.
constexpr int kRecordNumber = 1;
constexpr int kHistory = 2;
constexpr int kSummary = 3;
constexpr int kRun = 17;
constexpr int kExit = 18;
constexpr int kHeader = 21;
constexpr int kInfo = 200;

constexpr uint64_t kBlock = 32768;
constexpr std::string_view kFileHeader{":W&B\xe1\xbe\x00", 7};  // magic 0xbee1, version 0
constexpr uint64_t kFragmentHeader = 7;

/// JSON as wandb reads it: Python's, with NaN and Infinity.
std::string wandb_number(const Number& number) {
  const double value = as_double(number);
  if (std::isnan(value)) {
    return "NaN";
  }
  return std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity") : number_text(number);
}

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";

std::string draw_run_id() {
  std::random_device device;
  std::uniform_int_distribution<size_t> letter(0, kLetters.size() - 1);
  std::string id;
  for (int i = 0; i < 8; ++i) {
    id += kLetters[letter(device)];
  }
  return id;
}

/// The id becomes part of file names.
void check_run_id(const std::string& id) {
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
  if (!plain || id.size() > 64 || id.starts_with('.')) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("the run id '{}' is not made of letters, digits, '_', '-' and '.'", id),
        "change WANDB_RUN_ID");
  }
}

/// {2 nested_key, 16 value_json}
ProtobufMessage item(std::string_view name, std::string_view json) {
  ProtobufMessage message;
  message.text(2, name).text(16, json);
  return message;
}

ProtobufMessage run_message(const WandbOptions& options, const std::string& run_id) {
  ProtobufMessage run;
  run.text(1, run_id);
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
  run.message(17, time);
  return run;
}

std::filesystem::path make_folder(const WandbOptions& options, const std::string& run_id) {
  check_run_id(run_id);
  const auto folder =
      options.folder / "wandb" /
      fmt::format("offline-run-{}-{}", format_time("%Y%m%d_%H%M%S", options.start_time), run_id);
  create_folders(folder / "files");
  create_folders(folder / "logs");
  return folder;
}

/// wandb/latest-run points to the newest run.
void point_latest(const std::filesystem::path& folder) {
  std::error_code ignored;  // a convenience: a file system without links does without it
  const auto link = folder.parent_path() / "latest-run";
  if (std::filesystem::is_symlink(link, ignored)) {
    std::filesystem::remove(link, ignored);
  }
  std::filesystem::create_directory_symlink(folder.filename(), link, ignored);
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

WandbRun::WandbRun(const WandbOptions& options)
    : run_id_(options.run_id.empty() ? draw_run_id() : options.run_id),
      start_time_(options.start_time),
      last_time_(options.start_time),
      folder_(make_folder(options, run_id_)),
      log_(folder_ / fmt::format("run-{}.wandb", run_id_)) {
  ProtobufMessage version;
  version.text(1, "0.31.0").text(2, "0.70.0");  // whose reader understands all of this
  ProtobufMessage header;
  header.message(1, version);
  append(kHeader, header);
  append(kRun, run_message(options, run_id_));
  point_latest(folder_);
}

void WandbRun::append(int field, const ProtobufMessage& body) {
  ProtobufMessage info;
  info.text(1, run_id_);
  ProtobufMessage record;
  record.whole(kRecordNumber, ++records_).message(field, body).message(kInfo, info);
  log_.append(record.bytes());
}

void WandbRun::log(const Record& record) {
  last_time_ = record.wall_time;
  ProtobufMessage history;
  const auto add = [&](const std::string& name, const Number& number) {
    const std::string json = wandb_number(number);
    history.message(1, item(name, json));
    summary_[name] = json;
  };
  for (const auto& [name, number] : record.values) {
    add(tracker_name(name), number);
  }
  add("train/epoch", record.epoch);
  add("train/global_step", record.step);
  // A row of its own for every record: an evaluation has the step of the training line before it.
  const int64_t row = rows_++;
  add("_step", row);
  add("_timestamp", record.wall_time);
  add("_runtime", record.wall_time - start_time_);
  ProtobufMessage step;
  step.whole(1, row);
  history.message(2, step);
  append(kHistory, history);
}

void WandbRun::log_text(const Text& text) {
  last_time_ = text.wall_time;
  ProtobufMessage history;
  const int64_t row = rows_++;
  for (const auto& [name, json] :
       {std::pair{
            text.name,
            nlohmann::json(text.text).dump(
                -1, ' ', false, nlohmann::json::error_handler_t::replace)},
        std::pair{std::string("train/global_step"), std::to_string(text.step)},
        std::pair{std::string("_step"), std::to_string(row)}}) {
    history.message(1, item(name, json));
    summary_[name] = json;
  }
  ProtobufMessage step;
  step.whole(1, row);
  history.message(2, step);
  append(kHistory, history);
}

void WandbRun::finish() {
  ProtobufMessage summary;
  nlohmann::ordered_json file;
  for (const auto& [name, json] : summary_) {
    summary.message(1, item(name, json));
    file[name] = nlohmann::ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
    if (file[name].is_discarded()) {
      file[name] = json;  // NaN and the like
    }
  }
  append(kSummary, summary);
  ProtobufMessage exit;
  exit.whole(1, 0).whole(2, static_cast<int64_t>(last_time_ - start_time_));
  append(kExit, exit);
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
  return options;
}

}  // namespace lockstep::monitor
