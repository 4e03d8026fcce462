// Writer of metrics.jsonl.
#include "monitor/metrics.h"

#include <array>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace lockstep::monitor {

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
    : file_(LineFile::after_step(path, after)) {}

void MetricsFile::log(const Record& record) {
  if (record.kind != Record::Kind::kSummary) {
    file_.append(to_json_line(record));
  }
}

}  // namespace lockstep::monitor
