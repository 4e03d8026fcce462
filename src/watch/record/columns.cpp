#include "watch/record/columns.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "watch/record/threads.h"

namespace lockstep::watch {
namespace {

constexpr size_t kRemembered = 256;                 // bytes before the end
constexpr size_t kSmallestShare = size_t{1} << 20;  // bytes, for a thread of its own

struct Column {
  std::string name;
  std::string quoted;  // "\"loss\""
  Series series;
};

/// Reads lines into columns. Lines of one kind have their keys in one order, so each key is first
/// compared with the one that followed in the line before.
class LineReader {
 public:
  /// `room`: bytes of text for which columns get their room at once, since growing would copy them.
  void read(std::string_view lines, size_t room) {
    room_ = room;
    while (!lines.empty()) {
      const size_t end = std::min(lines.find('\n'), lines.size());
      const std::string_view line = lines.substr(0, end);
      lines.remove_prefix(std::min(end + 1, lines.size()));
      found_.clear();
      if (line.empty()) {
        continue;
      }
      line_bytes_ = line.size();
      is_as_before_ = true;
      if (!read_fast(line) && !read_any(line)) {
        ++bad_;
        continue;
      }
      keep();
    }
  }

  std::vector<Column>& columns() { return columns_; }
  int64_t bad() const { return bad_; }
  /// Whether no step is below one before it.
  bool ascends() const { return ascends_; }
  std::optional<int64_t> first_step() const { return first_step_; }
  int64_t last_step() const { return last_step_; }

 private:
  static constexpr size_t kStep = std::numeric_limits<size_t>::max();

  void keep() {
    if (!is_as_before_ || found_.size() != order_.size()) {
      order_.clear();
      for (const auto& [column, value] : found_) {
        order_.push_back(column);
      }
    }
    for (const auto& [column, value] : found_) {
      if (column != kStep) {
        Series& series = columns_[column].series;
        series.steps.push_back(step_);
        series.values.push_back(value);
      }
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
      columns_.push_back({std::string(name), '"' + std::string(name) + '"', {}});
      if (!first_step_) {  // a key of the first line: of all, as it seems
        columns_.back().series.steps.reserve(room_ / (line_bytes_ + 1) + 1);
        columns_.back().series.values.reserve(room_ / (line_bytes_ + 1) + 1);
      }
    }
    return found->second;
  }

  /// The line as our own monitor writes it; false where it is otherwise.
  bool read_fast(std::string_view line) {
    const char* at = line.data();
    const char* const end = at + line.size();
    const auto skip = [&](char letter) {
      while (at < end && *at == ' ') {
        ++at;
      }
      if (at == end || *at != letter) {
        return false;
      }
      ++at;
      return true;
    };
    const auto skip_spaces = [&] {
      while (at < end && *at == ' ') {
        ++at;
      }
    };
    bool has_step = false;
    if (!skip('{')) {
      return false;
    }
    do {
      skip_spaces();
      size_t column = 0;
      if (!read_key(at, end, column) || !skip(':')) {
        return false;
      }
      skip_spaces();
      double value = 0;
      if (column == kStep) {
        has_step = true;
        const auto [rest, problem] = std::from_chars(at, end, step_);
        if (problem != std::errc() || (rest < end && (*rest == '.' || *rest == 'e'))) {
          return false;
        }
        at = rest;
      } else if (!read_number(at, end, value)) {
        return false;
      }
      found_.emplace_back(column, value);
    } while (skip(','));
    return skip('}') && has_step && at == end;
  }

  bool read_key(const char*& at, const char* end, size_t& column) {
    const size_t place = found_.size();
    if (is_as_before_ && place < order_.size()) {
      static const std::string step = "\"step\"";
      const std::string& expected = order_[place] == kStep ? step : columns_[order_[place]].quoted;
      if (static_cast<size_t>(end - at) > expected.size() &&
          std::equal(expected.begin(), expected.end(), at)) {
        at += expected.size();
        column = order_[place];
        return true;
      }
    }
    is_as_before_ = false;
    if (at == end || *at != '"') {
      return false;
    }
    const char* const begin = at + 1;
    const char* const close = std::find(begin, end, '"');
    if (close == end || std::find(begin, close, '\\') != close) {
      return false;
    }
    column = column_of({begin, static_cast<size_t>(close - begin)});
    at = close + 1;
    return true;
  }

  static bool read_number(const char*& at, const char* end, double& value) {
    if (end - at >= 4 && std::string_view(at, 4) == "null") {
      at += 4;
      value = std::nan("");
      return true;
    }
    const auto [rest, problem] = std::from_chars(at, end, value);
    // JSON has no "inf" and no "nan", which from_chars knows.
    if (problem != std::errc() || rest[-1] < '0' || rest[-1] > '9') {
      return false;
    }
    at = rest;
    return true;
  }

  /// Any flat object; what is no number in it is passed over.
  bool read_any(std::string_view line) {
    found_.clear();
    is_as_before_ = false;
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json.at("step").is_number_integer()) {
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
  std::vector<size_t> order_;                     // of the last line
  std::vector<std::pair<size_t, double>> found_;  // of this line
  bool is_as_before_ = false;                     // so far, this line's keys
  size_t room_ = 0, line_bytes_ = 0;
  int64_t step_ = 0, bad_ = 0, last_step_ = 0;
  std::optional<int64_t> first_step_;
  bool ascends_ = true;
};

/// The text in shares of whole lines.
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

/// A file that somebody put together from several has its steps in any order.
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

bool MetricsReader::goes_on(std::string_view text) const {
  return text.size() >= end_ && text.substr(0, end_).ends_with(last_);
}

bool MetricsReader::refresh() {
  std::error_code none;
  const auto size = std::filesystem::file_size(path_, none);
  const MappedFile file = none || size == 0 ? MappedFile() : MappedFile(path_);
  const std::string_view text = file.text();
  const bool anew = !goes_on(text);
  if (anew) {
    series_.clear();
    last_.clear();
    end_ = 0;
    bad_lines_ = last_step_ = 0;
  }
  const size_t newline = text.rfind('\n');
  const size_t whole = newline == std::string_view::npos ? 0 : newline + 1;
  if (whole <= end_) {
    return anew;
  }
  take(text.substr(end_, whole - end_));
  end_ = whole;
  last_ = text.substr(end_ - std::min(end_, kRemembered), std::min(end_, kRemembered));
  return true;
}

void MetricsReader::take(std::string_view lines) {
  const std::vector<std::string_view> shares = shares_of(lines);
  std::vector<LineReader> readers(shares.size());
  // The first one's columns take what the others read.
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
