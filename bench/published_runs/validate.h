// Prediction against published measurement, and the fit of the cost model's parameters to a fifth
// of it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/machines/calibration.h"
#include "plan/machines/error_bars.h"
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

/// Runs of a system that are compared with each other: of one model on one kind of device, under
/// the same conditions.
std::string sweep_of(const Prepared& prepared);

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
  std::vector<double> truths;       // measured over predicted, of each run
  std::vector<double> unknown;      // the same, were the system unknown by name, too
  std::vector<std::string> sweeps;  // of each run: see sweep_of
  std::vector<double> rates;        // tokens per second and device, as predicted
};
using Told = std::function<void(const HeldOut&)>;
/// `known`: systems that were held out before, and are not again. Tells of each as it is done.
std::vector<HeldOut> leave_one_system_out(
    const std::vector<Run>& runs, std::vector<HeldOut> known, const Told& tell);

/// The same of memory, to which nothing is fitted: each system's runs, by the committed model.
std::vector<HeldOut> memory_by_system(const std::vector<Run>& runs);

/// Of the truths of all systems, each weighing as the root of its runs, the quantiles between which
/// `level` of them lie.
ErrorBars bars_of(const std::vector<HeldOut>& held, double level);
struct Holding {
  ErrorBars bars;
  double level = 0;   // of the quantiles
  size_t inside = 0;  // runs that lie within the bars of all other systems alone
  size_t runs = 0;
};
/// The narrowest bars, by level, that hold for systems which did not lend themselves to them: nine
/// of ten runs lie within the bars that the other systems make.
Holding bars_that_hold(const std::vector<HeldOut>& held);
/// How far apart two runs of a sweep must be predicted for their order to be right in nine of ten.
struct Order {
  double apart = 0;                     // the faster over the slower, less 1
  size_t nearer = 0, nearer_right = 0;  // pairs that are predicted nearer
  size_t further = 0, further_right = 0;
};
/// The least distance from which on, of the pairs between any such and twice it, nine of ten are
/// right.
Order order_that_holds(const std::vector<HeldOut>& held);
/// The source file error_bars_table.cpp.
std::string error_bars_source(const ErrorBarsTable& table);

/// The median of |1 / truth - 1|; 0 of none.
double median_error(const std::vector<double>& truths);
/// Runs as lines "truth unknown rate system", a tab, "sweep"; and back. Empty where there is no
/// such file.
std::string held_text(const HeldOut& held);
std::vector<HeldOut> read_held(const std::filesystem::path& path);
/// The table as the source file calibration_table.cpp.
std::string calibration_source(const Calibration& calibration);

}  // namespace lockstep::plan
