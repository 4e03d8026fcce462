// Fuzz targets for the record of a run: the files that a resume continues and that other programs
// read, also while they grow.
#include <algorithm>
#include <span>
#include <string>

#include "base/file.h"
#include "fuzz/helpers.h"
#include "monitor/line_file.h"
#include "watch/record/rank_times.h"
#include "watch/record/run.h"

namespace lockstep::fuzz {
namespace {

std::string contents(const fs::path& path) {
  const File file(path, File::Mode::kRead);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

/// A record with any bytes is continued after the step of the input's first byte. What is kept is a
/// beginning of the record, of complete lines, and what is removed without a line to warn of it is
/// not damaged.
void read_resumed_record(Bytes bytes) {
  const int64_t after = bytes.empty() ? 1 : 1 + static_cast<uint8_t>(bytes.front()) % 8;
  bytes = bytes.substr(std::min<size_t>(1, bytes.size()));
  const fs::path path = file_of(bytes, "resumed/metrics.jsonl");
  const std::string line = R"({"step": 9, "loss": 1.5})";
  monitor::LineFile::after_step(path, after).append(line);
  const std::string text = contents(path);
  check(text.ends_with(line + "\n"), "the line is added");
  const Bytes kept = Bytes(text).substr(0, text.size() - line.size() - 1);
  check(bytes.starts_with(kept), "what is kept is unchanged");
  check(kept.empty() || kept.ends_with('\n'), "what is kept are lines");
  // Another resume after the same step finds the same place.
  monitor::LineFile::after_step(path, after).append(line);
  check(contents(path) == text, "a resume can be repeated");
}

/// A ranks.jsonl that grows: the beginning of the input, then all of it.
void read_rank_times(Bytes bytes) {
  watch::RankTimes whole(file_of(bytes, "ranks.jsonl"));
  whole.refresh();
  const std::string json = whole.json();
  check(whole.lines().size() <= watch::RankTimes::kMost, "the number of entries is limited");
  watch::RankTimes growing(file_of(bytes.substr(0, bytes.size() / 2), "ranks.jsonl"));
  growing.refresh();
  file_of(bytes, "ranks.jsonl");
  growing.refresh();
  check(growing.json() == json, "the entries do not depend on when they are read");
  (void)whole.usual_compute();
  (void)whole.lately();
}

/// Record of a run copied from another machine: metrics, a line "====", events.
void read_run_record(Bytes bytes) {
  const auto [metrics, told] = before_and_behind(bytes, kBetween);
  file_of(metrics, "run/metrics.jsonl");
  const fs::path events = file_of(told, "run/events.jsonl");
  const watch::RunSummary run = watch::summarize(events.parent_path(), 1e9);
  (void)watch::end_text(run);
}

}  // namespace lockstep::fuzz
