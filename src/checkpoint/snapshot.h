// A rank's state, copied to the host while training goes on.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/device_copies.h"

namespace lockstep::checkpoint {

/// Copies of tensors into host memory: of what is on a GPU beside what that computes, and the host
/// does not wait. All but finish() is called by the training thread.
class Snapshot {
 public:
  /// `to` is on the host, of a floating type that `from` may be rounded to, and pinned where `from`
  /// is on a GPU. What that has been given so far comes before the first since finish().
  void copy(const at::Tensor& to, const at::Tensor& from);
  /// What a GPU is given from now on may write to what was copied from: it comes after the copies.
  void before_state_update();
  /// Of any thread, before the next copy: blocks until all are there.
  void finish();

 private:
  std::unique_ptr<ops::DeviceCopies> copies_;  // null: nothing was on a GPU
  std::vector<at::Tensor> sources_;            // that are being copied
  std::optional<c10::Event> copied_;           // after the last one
};

}  // namespace lockstep::checkpoint
