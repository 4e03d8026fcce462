#include "published_runs/runs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "data/records.h"

namespace lockstep::plan {

namespace {

constexpr std::array<const char*, 27> kRunColumns{
    "system",   "source", "model",     "params_b", "layers",       "hidden",      "heads",
    "kv_heads", "ffn",    "vocab",     "seq",      "global_batch", "micro_batch", "tp",
    "pp",       "dp",     "cp",        "ep",       "zero_or_fsdp", "schedule",    "recompute",
    "gpu",      "n_gpus", "precision", "metric",   "value",        "unit"};
constexpr size_t kConfigurationColumns = 24;

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

// Of each of kRunColumns, where it stands in the file.
std::vector<size_t> places_of_columns(
    const std::vector<std::string>& columns, const std::filesystem::path& path) {
  std::vector<size_t> places;
  std::vector<std::string> missing;
  for (const char* column : kRunColumns) {
    const auto found = std::find(columns.begin(), columns.end(), column);
    if (found == columns.end()) {
      missing.emplace_back(column);
    }
    places.push_back(static_cast<size_t>(found - columns.begin()));
  }
  if (!missing.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{} lacks the columns {}", path.string(), fmt::join(missing, ", ")),
        fmt::format("a first line with {}", fmt::join(kRunColumns, ",")));
  }
  return places;
}

}  // namespace

const std::string& Run::cell(const std::string& column) const {
  static const std::string blank;
  const auto found = cells.find(column);
  return found == cells.end() ? blank : found->second;
}

std::string Run::fingerprint() const {
  Hasher hasher;
  for (size_t c = 0; c < kConfigurationColumns; ++c) {
    hasher.update_field(cell(kRunColumns[c]));
  }
  return hasher.hex().substr(0, 16);
}

std::optional<double> Run::number(const std::string& column) const {
  return parse_number(cell(column));
}

std::vector<Run> read_runs(const std::filesystem::path& path) {
  const std::unique_ptr<data::TableReader> table = data::open_table(path, ',');
  const std::vector<size_t> places = places_of_columns(table->columns(), path);
  std::vector<Run> runs;
  std::map<std::string, size_t> known;
  data::Record record;
  while (table->next(record)) {
    const std::vector<std::string> row = data::split_row(record, ',', path);
    if (row.size() != table->columns().size()) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}, line {}: {} cells, and the first line has {}",
              path.string(),
              record.line,
              row.size(),
              table->columns().size()));
    }
    std::string key;
    for (size_t c = 0; c < kConfigurationColumns; ++c) {
      key += row[places[c]] + '\x1f';
    }
    const auto [entry, fresh] = known.try_emplace(key, runs.size());
    if (fresh) {
      runs.emplace_back().first = static_cast<int>(record.line);
      for (size_t c = 0; c < kConfigurationColumns; ++c) {
        runs.back().cells[kRunColumns[c]] = row[places[c]];
      }
    }
    Run& run = runs[entry->second];
    ++run.rows;
    const std::string& text = row[places[25]];
    run.metrics.push_back({row[places[24]], row[places[26]], text, parse_number(text).value_or(0)});
  }
  return runs;
}

namespace {

// Floating-point operations of a step as Megatron's papers count them: 72 (96 with recomputation) b
// s l h^2 (1 + ...).
double megatron_flops(const Job& job, bool recomputed) {
  const auto hidden = static_cast<double>(job.model.hidden_size);
  const auto layers = static_cast<double>(job.model.layers);
  const auto sequence = static_cast<double>(job.sequence);
  const auto vocabulary = static_cast<double>(job.model.vocab_size);
  const double tokens = static_cast<double>(job.global_batch) * sequence;
  const double blocks = 24 * tokens * layers * hidden * hidden * (1 + sequence / (6 * hidden));
  return blocks * (recomputed ? 4 : 3) + 6 * tokens * hidden * vocabulary;
}

}  // namespace

std::optional<double> measured_seconds(const Run& run, const Job& job) {
  const double tokens = static_cast<double>(job.global_batch) * static_cast<double>(job.sequence);
  const double devices = job.mesh.ranks();
  std::optional<double> best;
  int best_rank = 100;
  for (const Run::Metric& metric : run.metrics) {
    if (metric.value <= 0) {
      continue;
    }
    double seconds = 0;
    int rank = 0;
    if (metric.name.starts_with("iter_time")) {
      seconds = metric.value * (metric.unit == "ms" ? 1e-3 : 1);
    } else if (metric.name == "tokens_per_s_per_gpu") {
      seconds = tokens / (metric.value * devices);
      rank = 1;
    } else if (metric.name == "tokens_per_s_total") {
      seconds = tokens / metric.value;
      rank = 1;
    } else if (metric.name == "samples_per_s_per_gpu") {
      seconds = static_cast<double>(job.global_batch) / (metric.value * devices);
      rank = 2;
    } else if (metric.name == "sequences_per_s_total") {
      seconds = static_cast<double>(job.global_batch) / metric.value;
      rank = 2;
    } else if (metric.name == "model_tflops_per_gpu") {
      seconds = megatron_flops(job, false) / (metric.value * 1e12 * devices);
      rank = 3;
    } else if (metric.name.starts_with("hw_tflops_per_gpu")) {
      seconds = megatron_flops(job, true) / (metric.value * 1e12 * devices);
      rank = 4;
    } else {
      continue;
    }
    if (rank < best_rank) {
      best = seconds;
      best_rank = rank;
    }
  }
  return best;
}

std::optional<double> measured_bytes(const Run& run) {
  for (const Run::Metric& metric : run.metrics) {
    const bool memory = metric.name.starts_with("peak_mem") || metric.name.starts_with("gpu_mem");
    if (memory && metric.value > 0) {
      return metric.value * (metric.unit == "GiB" ? 1073741824.0 : 1e9);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::plan
