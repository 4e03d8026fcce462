// Prediction against published measurement, and the fit of the cost model's parameters to a fifth
// of it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/machines/calibration.h"
#include "plan/simulate.h"
#include "published_runs/runs.h"

namespace lockstep::plan {

/// One configuration, predicted. Errors are predicted / measured - 1.
struct Comparison {
  Prepared prepared;
  int rows = 0;
  bool lent = false;         // to the committed calibration
  bool system_lent = false;  // other runs of its system did
  std::optional<double> measured_seconds, measured_bytes, measured_bubble;
  std::optional<bool> measured_fits;
  double seconds = 0, bytes = 0, bubble = 0;
  std::string bubble_times;  // where the stage times are from that it is computed with
  bool fits = true;
  Step step;

  std::optional<double> time_error() const;
  std::optional<double> memory_error() const;
};

struct Skipped {
  std::string what;
  std::string reason;
  int rows = 0;
};

struct Validation {
  std::vector<Comparison> comparisons;  // in the order of the file
  std::vector<Skipped> skipped;
};

/// Which runs lend themselves to the calibration: the third of every five of the same system and
/// device, in the order of the file.
std::vector<bool> lent_to_calibration(const std::vector<Run>& runs);
/// Predicts every run that can be. The committed calibration knows which runs it was made from.
Validation validate(const std::vector<Run>& runs);

/// The machine that a run was made on.
Cluster cluster_of(const Prepared& prepared);

/// Kendall's rank correlation (tau-a) of predicted and measured; pairs whose measurements are
/// within `noise` of each other are no pairs. Nothing where there are fewer than three.
std::optional<double> kendall_tau(
    const std::vector<double>& predicted, const std::vector<double>& measured, double noise);

/// What the targets say of a validation; the text is the table that is printed, the JSON line its
/// last.
struct Verdict {
  std::string text;
  std::string json;
  bool met = true;
};
Verdict judge(const Validation& validation);

/// Fits the parameters to the lent runs: least absolute error of the logarithm of the step time,
/// each source weighing as the root of its runs, with a weak pull to the starting figures;
/// coordinate steps, then random joint ones from a fixed seed. Returns the table and prints what it
/// does through `tell`.
Calibration fit_calibration(
    const std::vector<Run>& runs, const std::function<void(const std::string&)>& tell);
/// Each system's runs, all of them, predicted by a fit to the others' lent ones: how well the model
/// carries over to what it has not seen.
struct HeldOut {
  std::string system;
  size_t runs = 0;
  double error = 0;  // median, of the step time
};
std::vector<HeldOut> leave_one_system_out(
    const std::vector<Run>& runs, const std::function<void(const std::string&)>& tell);
/// The table as the source file calibration_table.cpp.
std::string calibration_source(const Calibration& calibration);

}  // namespace lockstep::plan
