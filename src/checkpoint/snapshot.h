// Copies a rank's state to the host while training continues.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/device_copies.h"

namespace lockstep::checkpoint {

/// Copies tensors to host memory. GPU tensors are copied during computation, and the host does not
/// wait. All methods except finish() must be called on the training thread.
class Snapshot {
 public:
  /// Copies `from` to `to`. `to` must be on the host, have a floating type (to which `from` may be
  /// rounded), and be pinned if `from` is on a GPU. The first copy after finish() waits for work
  /// that is already queued on the GPU.
  void copy(const at::Tensor& to, const at::Tensor& from);
  /// Makes GPU work that is queued later wait for the copies, so that it may modify the sources.
  void before_state_update();
  /// Blocks until all copies are complete. May be called on any thread, before the next copy.
  void finish();

 private:
  std::unique_ptr<ops::DeviceCopies> copies_;  // null if no tensor was on a GPU
  std::vector<at::Tensor> sources_;            // tensors being copied
  std::optional<c10::Event> copied_;           // recorded after the last copy
};

}  // namespace lockstep::checkpoint
