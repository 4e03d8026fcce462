// Histograms of weights and gradients for the trackers, whatever the plan: every element is counted
// by the one rank that owns it, and ranks send counts, not tensors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "monitor/record.h"
#include "train/job.h"

namespace lockstep::train {

/// Counts in bins that are the same on all ranks: by magnitude four an octave from 2^-40 to 2^20,
/// of either sign, and one for what is smaller; what is larger is in the outermost ones.
class BinnedCounts {
 public:
  /// `rows` histograms.
  explicit BinnedCounts(int64_t rows);
  /// Adds floating-point `values` [n], on any device, to a row.
  void add(int64_t row, const at::Tensor& values);
  /// Sums over the ranks. Every rank must call, with as many rows.
  void reduce(comm::Communicator& communicator);
  /// A row, with its empty outer bins left out; nothing but zeros where nothing was added.
  monitor::Histogram histogram(int64_t row) const;

 private:
  at::Tensor sums_;      // float64 [rows, bins + 2]: counts, the sum, the sum of squares
  at::Tensor extremes_;  // float64 [rows, 2]: the greatest, and the greatest of the negated
};

/// Of what a job trains, every `monitor.histograms` steps.
class Histograms {
 public:
  Histograms(Job& job, RankContext& rank_context) : job_(job), rank_context_(rank_context) {}
  /// Whether the step that ends with `step` steps done has them.
  bool is_due(int64_t step) const;
  /// Counts gradients, between forward_backward and optimizer_step. Every rank must call.
  void count_gradients();
  /// Counts weights, after optimizer_step. Every rank must call.
  void count_weights();
  /// Tells what was counted of the step to rank 0's monitor, after the step was reported.
  void tell();

 private:
  void find_names();
  /// -1 where it is not trained.
  int64_t row_of(const std::string& name) const;

  Job& job_;
  RankContext& rank_context_;
  std::vector<std::string> names_;  // of what is trained, on any rank; sorted
  std::vector<std::pair<std::string, BinnedCounts>> counted_;  // "weights", "gradients"
};

}  // namespace lockstep::train
