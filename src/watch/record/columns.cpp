// Parses metrics.jsonl to columns, in parallel and incrementally.
#include "watch/record/columns.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json_lines.h"
#include "watch/record/threads.h"

namespace lockstep::watch {
namespace {

constexpr size_t kSome = 4000;  // number of lines of a long file that are shown first
constexpr size_t kSmallestShare = size_t{1} << 20;  // minimum bytes per thread

struct Column {
  std::string name;
  Series series;
};

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

/// Reads a JSON number. null becomes NaN.
bool read_number(const char*& at, const char* end, double& value) {
  if (end - at >= 4 && std::string_view(at, 4) == "null") {
    at += 4;
    value = std::nan("");
    return true;
  }
  const auto [rest, problem] = std::from_chars(at, end, value);
  // from_chars accepts "inf", "nan", ".5" and "5.", which JSON does not allow.
  if (problem != std::errc() || !is_digit(at[*at == '-' ? 1 : 0]) || !is_digit(rest[-1])) {
    return false;
  }
  at = rest;
  return true;
}

/// Reads lines to columns. Lines of the same kind have the same text between their numbers. Most
/// lines therefore have the form of an earlier line and need no JSON parser.
class LineReader {
 public:
  /// `room` is the number of bytes of text to reserve memory for, which avoids copies when the
  /// columns grow.
  void read(std::string_view lines, size_t room) {
    room_ = room;
    while (!lines.empty()) {
      const size_t end = std::min(lines.find('\n'), lines.size());
      const std::string_view line = lines.substr(0, end);
      lines.remove_prefix(std::min(end + 1, lines.size()));
      if (line.empty()) {
        continue;
      }
      line_bytes_ = line.size();
      if (read_as_before(line) || learn(line) || read_any(line)) {
        keep();
      } else {
        ++bad_;
      }
    }
  }

  std::vector<Column>& columns() { return columns_; }
  int64_t bad() const { return bad_; }
  /// Returns true if the steps never decrease.
  bool ascends() const { return ascends_; }
  std::optional<int64_t> first_step() const { return first_step_; }
  int64_t last_step() const { return last_step_; }

 private:
  static constexpr size_t kStep = std::numeric_limits<size_t>::max();
  static constexpr size_t kMostForms = 8;

  /// Text before a number, such as "{\"step\": " or ", \"loss\": ".
  struct Part {
    std::string text;
    size_t column;
  };
  using Form = std::vector<Part>;

  void keep() {
    for (const auto& [column, value] : found_) {
      Series& series = columns_[column].series;
      series.steps.push_back(step_);
      series.values.push_back(value);
    }
    ascends_ = ascends_ && (!first_step_ || step_ >= last_step_);
    last_step_ = first_step_ ? std::max(last_step_, step_) : step_;
    first_step_ = first_step_.value_or(step_);
  }

  size_t column_of(std::string_view name) {
    if (name == "step") {
      return kStep;
    }
    const auto [found, is_new] = by_name_.try_emplace(std::string(name), columns_.size());
    if (is_new) {
      columns_.push_back({std::string(name), {}});
      if (!first_step_) {  // a key of the first line, probably present in all lines
        const size_t lines = room_ / (line_bytes_ + 1) + 1;
        columns_.back().series.steps.reserve(lines);
        columns_.back().series.values.reserve(lines);
      }
    }
    return found->second;
  }

  bool read_step(const char*& at, const char* end) {
    const auto [rest, problem] = std::from_chars(at, end, step_);
    if (problem != std::errc() || (rest < end && (*rest == '.' || *rest == 'e'))) {
      return false;
    }
    at = rest;
    return true;
  }

  /// Reads the number after a part of a form.
  bool take(size_t column, const char*& at, const char* end) {
    if (column == kStep) {
      return read_step(at, end);
    }
    double value = 0;
    if (!read_number(at, end, value)) {
      return false;
    }
    found_.emplace_back(column, value);
    return true;
  }

  bool read_as(const Form& form, std::string_view line) {
    found_.clear();
    const char* at = line.data();
    const char* const end = at + line.size();
    for (const Part& part : form) {
      const size_t size = part.text.size();
      if (static_cast<size_t>(end - at) <= size || std::memcmp(at, part.text.data(), size) != 0) {
        return false;
      }
      at += size;
      if (!take(part.column, at, end)) {
        return false;
      }
    }
    return end - at == 1 && *at == '}';
  }

  bool read_as_before(std::string_view line) {
    for (size_t tried = 0; tried < forms_.size(); ++tried) {
      if (read_as(forms_[form_], line)) {
        return true;
      }
      form_ = (form_ + 1) % forms_.size();
    }
    return false;
  }

  /// Reads a line that is a flat object of numbers and stores its form. Returns false for other
  /// lines.
  bool learn(std::string_view line) {
    found_.clear();
    Form form;
    bool has_step = false;
    const char* at = line.data();
    const char* const end = at + line.size();
    while (at < end && *at != '}') {
      const char* const begin = at;
      const auto skip = [&](char letter) {
        at = std::find_if(at, end, [](char c) { return c != ' '; });
        return at < end && *at++ == letter;
      };
      if (!skip(form.empty() ? '{' : ',') || !skip('"')) {
        return false;
      }
      const std::string_view name(at, static_cast<size_t>(std::find(at, end, '"') - at));
      at += name.size();
      if (name.find('\\') != std::string_view::npos || !skip('"') || !skip(':')) {
        return false;
      }
      at = std::find_if(at, end, [](char c) { return c != ' '; });
      form.push_back({{begin, at}, column_of(name)});
      has_step = has_step || form.back().column == kStep;
      if (!take(form.back().column, at, end)) {
        return false;
      }
    }
    if (!has_step || end - at != 1) {
      return false;
    }
    if (forms_.size() < kMostForms) {
      forms_.push_back(std::move(form));
      form_ = forms_.size() - 1;
    } else {
      forms_[form_] = std::move(form);
    }
    return true;
  }

  /// Reads any flat object. Skips values that are not numbers.
  bool read_any(std::string_view line) {
    found_.clear();
    const nlohmann::json json = parse_json_line(line);
    if (!json.contains("step") || !json.at("step").is_number_integer()) {
      return false;
    }
    step_ = json.at("step").get<int64_t>();
    for (const auto& [name, value] : json.items()) {
      if (name != "step" && (value.is_number() || value.is_null())) {
        found_.emplace_back(column_of(name), value.is_null() ? std::nan("") : value.get<double>());
      }
    }
    return true;
  }

  std::vector<Column> columns_;
  std::unordered_map<std::string, size_t> by_name_;
  std::vector<Form> forms_;
  size_t form_ = 0;                               // form of the previous line
  std::vector<std::pair<size_t, double>> found_;  // values of this line
  size_t room_ = 0, line_bytes_ = 0;
  int64_t step_ = 0, bad_ = 0, last_step_ = 0;
  std::optional<int64_t> first_step_;
  bool ascends_ = true;
};

/// Divides the text at line boundaries into one share per thread.
std::vector<std::string_view> shares_of(std::string_view text) {
  const size_t threads = threads_for(text.size(), kSmallestShare);
  std::vector<std::string_view> shares;
  for (size_t left = threads; left > 0; --left) {
    const size_t wanted = text.size() / left;
    const size_t newline = left == 1 ? std::string_view::npos : text.find('\n', wanted);
    const size_t size = newline == std::string_view::npos ? text.size() : newline + 1;
    shares.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return shares;
}

void append(Series& to, Series from) {
  if (to.steps.empty()) {
    to = std::move(from);
    return;
  }
  to.steps.insert(to.steps.end(), from.steps.begin(), from.steps.end());
  to.values.insert(to.values.end(), from.values.begin(), from.values.end());
}

/// Sorts a series by step. If a file was concatenated from several files, its steps are not in
/// order.
void sort_by_step(Series& series) {
  std::vector<size_t> order(series.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return series.steps[a] < series.steps[b];
  });
  Series sorted;
  for (const size_t i : order) {
    sorted.steps.push_back(series.steps[i]);
    sorted.values.push_back(series.values[i]);
  }
  series = std::move(sorted);
}

}  // namespace

const Series& MetricsReader::find(const std::string& name) const {
  static const Series nothing;
  const auto found = series_.find(name);
  return found == series_.end() ? nothing : found->second;
}

bool MetricsReader::look() {
  using namespace std::chrono_literals;
  if (is_partial() && whole_.wait_for(0s) != std::future_status::ready) {
    return false;
  }
  std::error_code none;
  if (is_partial() || !file_.is_at_begin() ||
      std::filesystem::file_size(file_.path(), none) < long_from_ || none) {
    return refresh();
  }
  take_some();
  whole_ = std::async(std::launch::async, [path = file_.path()] {
    auto reader = std::make_unique<MetricsReader>(path);
    reader->refresh();
    return reader;
  });
  return true;
}

void MetricsReader::take_some() {
  const MappedFile file(file_.path());
  const std::string_view text = file.text().substr(0, file.text().rfind('\n') + 1);
  std::string lines;
  size_t end = 0;
  const auto add_line = [&](size_t begin) {
    if (begin >= end && begin < text.size()) {
      end = text.find('\n', begin) + 1;
      lines += text.substr(begin, end - begin);
    }
  };
  add_line(0);
  for (size_t i = 1; i < kSome; ++i) {
    add_line(text.find('\n', text.size() / kSome * i) + 1);
  }
  add_line(text.substr(0, std::max<size_t>(text.size(), 1) - 1).rfind('\n') + 1);
  take(lines);
}

bool MetricsReader::refresh() {
  if (is_partial()) {
    *this = std::move(*whole_.get());
    refresh();
    return true;
  }
  return file_.read(
      [&] {
        series_.clear();
        bad_lines_ = last_step_ = 0;
      },
      [&](std::string_view lines) { take(lines); });
}

void MetricsReader::take(std::string_view lines) {
  const std::vector<std::string_view> shares = shares_of(lines);
  std::vector<LineReader> readers(shares.size());
  // The values of the other readers are appended to the columns of the first one.
  in_threads(shares.size(), shares.size(), [&](size_t i) {
    readers[i].read(shares[i], i == 0 ? lines.size() : shares[i].size());
  });
  bool ascends = true;
  std::map<std::string, std::vector<Series*>> parts;
  for (LineReader& reader : readers) {
    bad_lines_ += reader.bad();
    ascends = ascends && reader.ascends() && reader.first_step().value_or(last_step_) >= last_step_;
    last_step_ = std::max(last_step_, reader.last_step());
    for (Column& column : reader.columns()) {
      parts[column.name].push_back(&column.series);
    }
  }
  std::vector<std::pair<Series*, std::vector<Series*>>> all;
  for (auto& [name, from] : parts) {
    all.emplace_back(&series_[name], std::move(from));
  }
  in_threads(shares.size(), all.size(), [&](size_t i) {
    for (Series* const part : all[i].second) {
      append(*all[i].first, std::move(*part));
    }
    if (!ascends) {
      sort_by_step(*all[i].first);
    }
  });
}

}  // namespace lockstep::watch
