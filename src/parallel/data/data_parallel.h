// Data parallelism: every rank holds all parameters and works on its own part of the batch;
// gradients are summed in buckets while the backward pass still runs (Li et al., "PyTorch
// Distributed", VLDB 2020, 3.2).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "parallel/data/bucket.h"

namespace lockstep::parallel {

struct DataParallelOptions {
  double bucket_megabytes = 25;  // ddp_bucket_cap_mb
  bool find_unused_parameters =
      false;  // else a parameter without a gradient is an error that names it
  at::ScalarType gradient_type = at::kFloat;  // of the buffers that accumulate and are reduced
};

/// The gradients' way from autograd to the optimizer. A step, on every rank alike:
///   begin_step(); for each micro-batch { begin_micro_batch(last); loss.backward();
///   end_micro_batch(); } finish();     then read buckets()[i].gradient: the sum over ranks and
///   micro-batches
/// Only the last micro-batch of a step communicates. Reductions are started in one static order, so
/// that ranks whose gradients come in another order never deadlock.
class DataParallel {
 public:
  /// Takes over the storage of the parameters and makes them equal to rank 0's. Every rank must
  /// call.
  DataParallel(
      comm::Communicator& group,
      const std::vector<ParameterUnit>& units,
      const DataParallelOptions& options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  void begin_step();
  void begin_micro_batch(bool last);
  /// Error (config) naming the parameters that got no gradient, unless those are looked for.
  void end_micro_batch();
  void finish();

  /// After the optimizer wrote into the buckets' values: graphs of before this are void.
  void parameters_changed();
  /// The parameter whose summed gradient holds the first NaN or infinity.
  std::optional<std::string> first_non_finite() const;

  std::vector<Bucket>& buckets() { return buckets_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Reductions that started while the backward pass of the last step still ran.
  int overlapped_reductions() const { return overlapped_; }

 private:
  void gradient_written(size_t bucket, size_t entry);
  void start_reductions();

  comm::Communicator& group_;
  DataParallelOptions options_;
  std::vector<Bucket> buckets_;
  size_t next_reduction_ = 0;  // buckets before this one are on their way
  bool last_micro_batch_ = false;
  bool in_backward_ = false;
  int overlapped_ = 0;
};

}  // namespace lockstep::parallel
