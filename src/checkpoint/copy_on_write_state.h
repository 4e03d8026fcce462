// Copy-on-write sharing of training state with the saver thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include <ATen/core/Tensor.h>

namespace lockstep::checkpoint {

/// The saver thread reads a step's state in place until training is about to modify it. What is
/// unread by then is copied first and read from the copy. A forward and backward pass does not
/// modify the state, so most saves copy nothing.
class CopyOnWriteState {
 public:
  /// Called by the training thread while no save reads. Both tensors are flat bytes; `copy` has the
  /// size of `from`. Returns false if part of `from` is shared already.
  bool lend(const at::Tensor& from, const at::Tensor& copy);
  /// Called by the training thread; when it returns, the shared tensors may be modified.
  void before_state_update();
  /// Called by the saver thread when it has finished reading.
  void end();
  /// Calls `body` with the address of the `count` bytes that were at `from` when they were lent, or
  /// with `from` itself if they were not. Each byte once, each tensor from front to back, or more
  /// is copied than must be.
  void read(
      const std::byte* from, int64_t count, const std::function<void(const std::byte*)>& body);

 private:
  struct Part {
    at::Tensor from, copy;
    int64_t read = 0;     // bytes from the front
    bool copied = false;  // the bytes from `read` on
  };

  std::mutex mutex_;  // locked while bytes are gathered, not while they are written
  std::map<const std::byte*, Part> parts_;  // by start address
};

}  // namespace lockstep::checkpoint
