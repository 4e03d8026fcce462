// Published runs: rows of a CSV file with the columns of docs/plan.md, one metric a row, gathered
// by configuration.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/machines/cluster.h"
#include "plan/workload/job.h"
#include "schedule/timeline.h"

namespace lockstep::plan {

/// A configuration, and what was measured of it, [metric name] in the file's own unit.
struct Run {
  std::map<std::string, std::string> cells;  // by column
  struct Metric {
    std::string name, unit, text;
    double value = 0;
  };
  std::vector<Metric> metrics;
  int rows = 0;   // of the file
  int first = 0;  // line in the file

  const std::string& cell(const std::string& column) const;
  /// 16 hexadecimal digits of the configuration, its measurements left out.
  std::string fingerprint() const;
  /// Nothing where the cell is blank or no number.
  std::optional<double> number(const std::string& column) const;
};

/// Throws (data) where the file is no CSV or columns are missing.
std::vector<Run> read_runs(const std::filesystem::path& path);

/// Times of a pipeline stage for one micro-batch, in one unit, and where they are from.
struct StageProfile {
  schedule::StageTimes stage;
  double message = 0;
  std::string from;
};

/// Of the row's own metrics (T_F, T_B, T_W, T_comm); else those that its source profiled; else
/// equal ones and no messages.
StageProfile stage_profile(const Run& run);

/// A run that can be predicted, and what its system is known to do; or why it cannot be.
struct Prepared {
  std::string skipped;  // the reason; empty where the rest is filled
  Job job;
  Device device;
  double network_bandwidth =
      0;  // of the machine, where it is known to differ from the device's usual
  std::string published_schedule;  // as the row has it
  std::string system, model;
  bool is_mixture = false;       // of experts: told, and neither fitted to nor judged
  bool fixed_recompute = false;  // the row tells it; else what fits is taken
  std::string conditions;        // of the machine, where runs under others are not to be compared
  double slowdown = 1;           // of the machine under them
  double spread = 0.03;          // two measurements nearer than this rank neither way
  std::string contradiction;     // what speaks against the measurement; empty: nothing
};

/// Blank cells are left to be what the system does when it is told nothing: see docs/plan.md.
Prepared prepare(const Run& run);

/// What is known of the training system of a run: facts from its papers and sources, by a part of
/// its name; of one never seen, what was usual on its device in the year of its source.
Software software_of(const Run& run, const Job& job, const Device& device);

/// The measured step time in seconds, from the metric that says it most directly.
std::optional<double> measured_seconds(const Run& run, const Job& job);
std::optional<double> measured_bytes(const Run& run);

}  // namespace lockstep::plan
