// The numbers of metrics.jsonl as columns, read as fast as the file comes from memory, and read on
// while the run writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::watch {

/// A metric over a run, in order of steps. NaN where the file has null.
struct Series {
  std::vector<int64_t> steps;
  std::vector<double> values;  // as many
  size_t size() const { return steps.size(); }
};

/// What a metrics.jsonl holds so far.
class MetricsReader {
 public:
  static constexpr uintmax_t kLong = uintmax_t{64} << 20;  // bytes

  /// A file that is not there yet is an empty one. `long_from`: bytes from which look() does not
  /// read all at once.
  explicit MetricsReader(std::filesystem::path path, uintmax_t long_from = kLong)
      : path_(std::move(path)),
        long_from_(long_from) {}

  /// Reads the whole lines that were added since the last call; all anew where the file was cut or
  /// made anew meanwhile (a resume cuts it). A last line without a newline waits for its end; lines
  /// that are no flat JSON object with an integer "step" are counted and passed over. Returns
  /// whether anything changed. Throws Error (data) where the file cannot be read.
  bool refresh();
  /// refresh(), but a long file that was not read yet is read by a thread, and until that has ended
  /// the series hold every so many-th line of it, and the last. Never takes long.
  bool look();
  /// Whether the series hold a part of the lines alone.
  bool is_partial() const { return whole_.valid(); }

  /// By name; "step" itself is none.
  const std::map<std::string, Series>& series() const { return series_; }
  /// The series of that name; an empty one where there is none.
  const Series& find(const std::string& name) const;
  int64_t bad_lines() const { return bad_lines_; }
  /// The last step of any line; 0 before the first.
  int64_t last_step() const { return last_step_; }

 private:
  bool goes_on(std::string_view text) const;
  void take(std::string_view lines);
  void take_some();

  std::filesystem::path path_;
  uintmax_t long_from_;
  std::future<std::unique_ptr<MetricsReader>> whole_;  // while series_ is of a part
  std::map<std::string, Series> series_;
  int64_t bad_lines_ = 0, last_step_ = 0;
  size_t end_ = 0;    // bytes taken
  std::string last_;  // the last of them, to tell a file that was made anew
};

}  // namespace lockstep::watch
