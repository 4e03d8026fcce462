// Writes TensorBoard event files.
#include "monitor/tensorboard.h"

#include <array>
#include <atomic>
#include <cmath>
#include <numeric>
#include <span>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/format.h"
#include "base/json.h"
#include "monitor/protobuf.h"
#include "monitor/trackers.h"

namespace lockstep::monitor {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1U) != 0 ? (crc >> 1) ^ 0x82f63b78U : crc >> 1;
    }
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();
/// Values of TensorFlow's DataType for string and float.
constexpr int kStringType = 7;
constexpr int kFloatType = 1;

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

std::string little_endian(uint64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>(value >> (8 * i));
  }
  return bytes;
}

ProtobufMessage event_at(double wall_time, int64_t step) {
  ProtobufMessage event;
  event.real(1, wall_time);
  if (step != 0) {  // protobuf omits the default value 0
    event.whole(2, step);
  }
  return event;
}

/// Returns a value for the HParams plugin. Its data is stored in the metadata.
ProtobufMessage hparams_value(std::string_view tag, const ProtobufMessage& data) {
  ProtobufMessage plugin;
  plugin.text(1, "hparams").message(2, data);
  ProtobufMessage metadata;
  metadata.message(1, plugin);
  ProtobufMessage tensor;
  tensor.whole(1, kFloatType).message(2, ProtobufMessage());
  ProtobufMessage value;
  value.text(1, tag).message(8, tensor).message(9, metadata);
  return value;
}

/// Adds the leaves of a configuration as google.protobuf.Value. Keys are joined by dots.
void add_hparams(ProtobufMessage& session, const nlohmann::json& configuration) {
  visit_leaves(configuration, [&](const std::string& name, const nlohmann::json& leaf) {
    ProtobufMessage value;
    if (leaf.is_number()) {
      value.real(2, leaf.get<double>());
    } else if (leaf.is_boolean()) {
      value.whole(4, leaf.get<bool>() ? 1 : 0);
    } else if (leaf.is_string()) {
      value.text(3, leaf.get<std::string>());
    } else if (leaf.is_null()) {
      return;
    } else {
      value.text(3, leaf.dump());
    }
    ProtobufMessage entry;
    entry.text(1, name).message(2, value);
    session.message(1, entry);
  });
}

/// Returns a summary with one value.
ProtobufMessage summary_of(const ProtobufMessage& value) {
  ProtobufMessage summary;
  summary.message(1, value);
  return summary;
}

File create_file(const std::filesystem::path& folder, double wall_time) {
  static std::atomic<int> files{0};
  create_folders(folder);
  const auto name = fmt::format(
      "events.out.tfevents.{:010}.{}.{}.{}",
      static_cast<int64_t>(wall_time),
      host_name(),
      ::getpid(),
      files++);
  return {folder / name, File::Mode::kCreate};
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc = kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xffU] ^ (crc >> 8);
  }
  return ~crc;
}

std::string tensorboard_frame(std::string_view event) {
  const std::string length = little_endian(event.size(), 8);
  std::string frame = length + little_endian(masked_crc(length), 4);
  frame += event;
  return frame + little_endian(masked_crc(event), 4);
}

std::string tensorboard_version_event(double wall_time) {
  return event_at(wall_time, 0).text(3, "brain.Event:2").bytes();
}

std::string tensorboard_scalar_event(
    double wall_time, int64_t step, std::string_view tag, double value) {
  ProtobufMessage scalar;
  scalar.text(1, tag).real32(2, static_cast<float>(value));
  return event_at(wall_time, step).message(5, summary_of(scalar)).bytes();
}

std::string tensorboard_text_event(
    double wall_time, int64_t step, std::string_view tag, std::string_view text) {
  ProtobufMessage plugin;
  plugin.text(1, "text");
  ProtobufMessage metadata;
  metadata.message(1, plugin);
  ProtobufMessage dim;
  dim.whole(1, 1);
  ProtobufMessage shape;
  shape.message(2, dim);
  ProtobufMessage tensor;
  tensor.whole(1, kStringType).message(2, shape).text(8, text);
  ProtobufMessage value;
  value.text(1, tag).message(8, tensor).message(9, metadata);
  return event_at(wall_time, step).message(5, summary_of(value)).bytes();
}

std::string tensorboard_histogram_event(
    double wall_time, int64_t step, std::string_view tag, const Histogram& values) {
  ProtobufMessage histogram;
  histogram.real(1, values.min)
      .real(2, values.max)
      .real(3, std::accumulate(values.counts.begin(), values.counts.end(), 0.0))
      .real(4, values.sum)
      .real(5, values.sum_squares)
      .reals(6, values.limits)
      .reals(7, values.counts);
  ProtobufMessage value;
  value.text(1, tag).message(5, histogram);
  return event_at(wall_time, step).message(5, summary_of(value)).bytes();
}

std::string tensorboard_hparams_event(double wall_time, std::string_view configuration_json) {
  ProtobufMessage session;
  add_hparams(session, parse_json(configuration_json, "the configuration"));
  session.real(5, wall_time);
  ProtobufMessage data;
  data.message(3, session);
  return event_at(wall_time, 0)
      .message(5, summary_of(hparams_value("_hparams_/session_start_info", data)))
      .bytes();
}

std::string tensorboard_end_event(double wall_time) {
  constexpr int kSuccess = 1;
  ProtobufMessage session;
  session.whole(1, kSuccess).real(2, wall_time);
  ProtobufMessage data;
  data.message(4, session);
  return event_at(wall_time, 0)
      .message(5, summary_of(hparams_value("_hparams_/session_end_info", data)))
      .bytes();
}

TensorboardFile::TensorboardFile(
    const std::filesystem::path& folder, double wall_time, std::string_view configuration_json)
    : file_(create_file(folder, wall_time)) {
  std::string frames = tensorboard_frame(tensorboard_version_event(wall_time));
  if (!configuration_json.empty()) {
    // TensorBoard renders text as Markdown. A fenced block preserves line breaks.
    frames += tensorboard_frame(tensorboard_text_event(
        wall_time, 0, "args", fmt::format("```json\n{}\n```", configuration_json)));
    frames += tensorboard_frame(tensorboard_hparams_event(wall_time, configuration_json));
  }
  write(frames);
}

void TensorboardFile::log(const Record& record) {
  std::string frames;
  if (record.kind == Record::Kind::kSummary) {  // last record of a successful run
    frames += tensorboard_frame(tensorboard_end_event(record.wall_time));
  }
  const auto add = [&](std::string_view name, double value) {
    frames += tensorboard_frame(
        tensorboard_scalar_event(record.wall_time, record.step, tracker_name(name), value));
  };
  add("epoch", record.epoch);
  for (const auto& [name, number] : record.values) {
    add(name, as_double(number));
  }
  write(frames);
}

void TensorboardFile::log_text(const Text& text) {
  write(tensorboard_frame(tensorboard_text_event(
      text.wall_time, text.step, text.name, fmt::format("```\n{}\n```", text.text))));
}

void TensorboardFile::log_histogram(
    int64_t step, double wall_time, const std::string& name, const Histogram& values) {
  write(tensorboard_frame(tensorboard_histogram_event(wall_time, step, name, values)));
}

void TensorboardFile::write(const std::string& frames) {
  file_.write_at(end_, std::as_bytes(std::span(frames)));
  end_ += frames.size();
}

}  // namespace lockstep::monitor
