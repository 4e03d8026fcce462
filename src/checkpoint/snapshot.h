// A copy of a rank's state on the host, taken while training continues.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/device_copies.h"

namespace lockstep::checkpoint {

/// Copies tensors into host memory. GPU tensors are copied alongside computation and the host does
/// not wait. The training thread calls everything except finish().
class Snapshot {
 public:
  /// `to` is on the host, of a floating type to which `from` may be rounded, and pinned if `from`
  /// is on a GPU. The first copy after finish() waits for the work that the GPU has been given so
  /// far.
  void copy(const at::Tensor& to, const at::Tensor& from);
  /// GPU work queued from now on may modify the sources: it runs after the copies.
  void before_state_update();
  /// Of any thread, before the next copy: blocks until all are there.
  void finish();

 private:
  std::unique_ptr<ops::DeviceCopies> copies_;  // null: no tensor was on a GPU
  std::vector<at::Tensor> sources_;            // that are being copied
  std::optional<c10::Event> copied_;           // after the last one
};

}  // namespace lockstep::checkpoint
