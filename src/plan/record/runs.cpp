#include "plan/record/runs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"

namespace lockstep::plan {

namespace {

constexpr std::array<const char*, 27> kRunColumns{
    "system",   "source", "model",     "params_b", "layers",       "hidden",      "heads",
    "kv_heads", "ffn",    "vocab",     "seq",      "global_batch", "micro_batch", "tp",
    "pp",       "dp",     "cp",        "ep",       "zero_or_fsdp", "schedule",    "recompute",
    "gpu",      "n_gpus", "precision", "metric",   "value",        "unit"};
constexpr size_t kConfigurationColumns = 24;

// RFC 4180: quoted cells may hold commas, quotes (doubled) and line ends.
std::vector<std::vector<std::string>> parse_csv(std::string_view text, const std::string& source) {
  std::vector<std::vector<std::string>> rows(1);
  std::string cell;
  bool quoted = false;
  const auto end_cell = [&] {
    rows.back().push_back(std::move(cell));
    cell.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        cell += '"';
        ++i;
      } else if (c == '"') {
        quoted = false;
      } else {
        cell += c;
      }
    } else if (c == '"' && cell.empty()) {
      quoted = true;
    } else if (c == ',') {
      end_cell();
    } else if (c == '\n') {
      end_cell();
      rows.emplace_back();
    } else if (c != '\r') {
      cell += c;
    }
  }
  if (quoted) {
    throw Error(ErrorKind::kData, source + " ends within quotes");
  }
  if (!cell.empty() || !rows.back().empty()) {
    end_cell();
  } else {
    rows.pop_back();
  }
  return rows;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
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

std::vector<Run> parse_runs(std::string_view csv, const std::string& source) {
  const std::vector<std::vector<std::string>> rows = parse_csv(csv, source);
  if (rows.empty()) {
    throw Error(ErrorKind::kData, source + " is empty");
  }
  std::vector<size_t> places;
  std::string missing;
  for (const char* column : kRunColumns) {
    const auto found = std::find(rows[0].begin(), rows[0].end(), column);
    if (found == rows[0].end()) {
      missing += std::string(missing.empty() ? "" : ", ") + column;
    }
    places.push_back(static_cast<size_t>(found - rows[0].begin()));
  }
  if (!missing.empty()) {
    throw Error(
        ErrorKind::kData,
        fmt::format("{} lacks the columns {}", source, missing),
        fmt::format("a first line with {}", fmt::join(kRunColumns, ",")));
  }
  std::vector<Run> runs;
  std::map<std::string, size_t> known;
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].size() == 1 && rows[i][0].empty()) {
      continue;
    }
    if (rows[i].size() != rows[0].size()) {
      throw Error(
          ErrorKind::kData,
          fmt::format(
              "{}, row {}: {} cells, and the first line has {}",
              source,
              i + 1,
              rows[i].size(),
              rows[0].size()));
    }
    std::string key;
    for (size_t c = 0; c < kConfigurationColumns; ++c) {
      key += rows[i][places[c]] + '\x1f';
    }
    const auto [entry, fresh] = known.try_emplace(key, runs.size());
    if (fresh) {
      runs.emplace_back().first = static_cast<int>(i + 1);
      for (size_t c = 0; c < kConfigurationColumns; ++c) {
        runs.back().cells[kRunColumns[c]] = rows[i][places[c]];
      }
    }
    Run& run = runs[entry->second];
    ++run.rows;
    const std::string& text = rows[i][places[25]];
    run.metrics.push_back(
        {rows[i][places[24]], rows[i][places[26]], text, parse_number(text).value_or(0)});
  }
  return runs;
}

std::vector<Run> read_runs(const std::filesystem::path& path) {
  return parse_runs(read_file(path), path.string());
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
