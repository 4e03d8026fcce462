// Writes metrics.jsonl and other files with one line per step.
#include "monitor/metrics.h"

#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"

namespace lockstep::monitor {
namespace {

/// Returns the "step" of a line; throws Error if there is none.
int64_t step_of(std::string_view line, const std::string& place) {
  const nlohmann::json parsed = parse_json(line, place);
  const auto step = parsed.is_object() ? parsed.find("step") : parsed.end();
  if (step == parsed.end() || !step->is_number_integer()) {
    throw Error(ErrorKind::kData, fmt::format("{} has no \"step\"", place));
  }
  return step->get<int64_t>();
}

/// Returns the complete lines of `text` up to and including a step.
std::string lines_until(std::string_view text, int64_t last_step, const std::string& source) {
  std::string kept;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t newline = text.find('\n');
    if (newline == std::string_view::npos) {
      break;  // incomplete: the writer was killed
    }
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline + 1);
    if (step_of(line, fmt::format("{}, line {},", source, number)) <= last_step) {
      kept += line;
      kept += '\n';
    }
  }
  return kept;
}

}  // namespace

File open_lines_after(const std::filesystem::path& path, int64_t after) {
  if (after <= 0 || !std::filesystem::exists(path)) {
    return {path, File::Mode::kCreate};
  }
  const std::string text = read_file(path);
  const std::string kept = in_context("continuing the metrics of an earlier run", [&] {
    try {
      return lines_until(text, after, path.string());
    } catch (const Error& error) {
      throw Error(
          error.kind(),
          error.message(),
          fmt::format("move {} away; training does not need it", path.string()));
    }
  });
  if (kept.size() != text.size()) {
    write_file_atomically(path, kept);
  }
  return {path, File::Mode::kWrite};
}

std::string number_text(const Number& number) {
  if (const auto* whole = std::get_if<int64_t>(&number)) {
    return std::to_string(*whole);
  }
  const double value = std::get<double>(number);
  if (!std::isfinite(value)) {
    return "null";
  }
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string text(digits.data(), end);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string to_json_line(const Record& record) {
  std::string line =
      fmt::format("{{\"step\": {}, \"epoch\": {}", record.step, number_text(record.epoch));
  for (const auto& [name, number] : record.values) {
    line += fmt::format(", {}: {}", nlohmann::json(name).dump(), number_text(number));
  }
  return line + "}";
}

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t after)
    : file_(open_lines_after(path, after)),
      end_(file_.size()) {}

void MetricsFile::log(const Record& record) {
  if (record.kind == Record::Kind::kSummary) {
    return;
  }
  const std::string line = to_json_line(record) + "\n";
  file_.write_at(end_, std::as_bytes(std::span(line)));
  end_ += line.size();
}

}  // namespace lockstep::monitor
