// Histograms of weights and gradients for experiment trackers, for any parallel plan. Each element
// is counted by the rank that owns it. Ranks exchange counts, not tensors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "monitor/record.h"
#include "train/job.h"

namespace lockstep::train {

/// Histogram counts with the same bins on all ranks. For each sign, there are four bins per octave
/// of magnitude from 2^-40 to 2^20. Smaller values share one bin. Larger values are counted in the
/// outermost bins.
class BinnedCounts {
 public:
  /// Creates `rows` empty histograms.
  explicit BinnedCounts(int64_t rows);
  /// Adds floating-point `values` [n], on any device, to one histogram.
  void add(int64_t row, const at::Tensor& values);
  /// Sums the counts over the ranks. Must be called on every rank, with the same number of rows.
  void reduce(comm::Communicator& communicator);
  /// Returns one histogram without its empty outer bins. All zeros if no value was added.
  monitor::Histogram histogram(int64_t row) const;

 private:
  at::Tensor sums_;      // float64 [rows, bins + 2]: counts, sum, sum of squares
  at::Tensor extremes_;  // float64 [rows, 2]: maximum, and maximum of the negated values
};

/// Histograms of a job's trainable parameters, every `monitor.histograms` steps.
class Histograms {
 public:
  Histograms(Job& job, RankContext& rank_context) : job_(job), rank_context_(rank_context) {}
  /// Returns true if histograms are due in the step that completes `step` steps.
  bool is_due(int64_t step) const;
  /// Counts gradients. Must be called between forward_backward and optimizer_step, on every rank.
  void count_gradients();
  /// Counts weights. Must be called after optimizer_step, on every rank.
  void count_weights();
  /// Passes the counts to rank 0's monitor. Must be called after the step was logged.
  void tell();

 private:
  void find_names();
  /// Returns the parameter's index, or -1 if it is not trained.
  int64_t row_of(const std::string& name) const;

  Job& job_;
  RankContext& rank_context_;
  std::vector<std::string> names_;  // trainable parameters of all ranks, sorted
  std::vector<std::pair<std::string, BinnedCounts>> counted_;  // "weights", "gradients"
};

}  // namespace lockstep::train
