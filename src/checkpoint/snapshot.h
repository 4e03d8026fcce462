// Copy of a rank's state on the host, made while training continues.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/device_copies.h"

namespace lockstep::checkpoint {

/// Copies tensors into host memory. GPU tensors are copied concurrently with computation, and the
/// host does not wait. The training thread calls everything except finish().
class Snapshot {
 public:
  /// Copies `from` to `to`. `to` is on the host, of a floating type to which `from` may be rounded,
  /// and pinned if `from` is on a GPU. The first copy after finish() waits for the work that is
  /// already queued on the GPU.
  void copy(const at::Tensor& to, const at::Tensor& from);
  /// Makes GPU work that is queued from now on wait for the copies, so that it may modify the
  /// sources.
  void before_state_update();
  /// Blocks until all copies are complete. May be called by any thread, before the next copy.
  void finish();

 private:
  std::unique_ptr<ops::DeviceCopies> copies_;  // null if no tensor was on a GPU
  std::vector<at::Tensor> sources_;            // tensors being copied
  std::optional<c10::Event> copied_;           // recorded after the last copy
};

}  // namespace lockstep::checkpoint
