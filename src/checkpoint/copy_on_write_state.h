// Copy-on-write sharing of training state with the saver thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include <ATen/core/Tensor.h>

namespace lockstep::checkpoint {

/// Training state that the saver thread reads in place until training is about to modify it. Bytes
/// that are unread by then are copied first and read from the copy. Forward and backward passes do
/// not modify the state, so most saves copy nothing.
class CopyOnWriteState {
 public:
  /// Shares `from` with the saver thread. Called by the training thread while no save reads. Both
  /// tensors are flat bytes; `copy` has the size of `from`. Returns false if part of `from` is
  /// shared already.
  bool lend(const at::Tensor& from, const at::Tensor& copy);
  /// Copies the unread bytes; afterwards the shared tensors may be modified. Called by the training
  /// thread.
  void before_state_update();
  /// Called by the saver thread when it has finished reading.
  void end();
  /// Calls `body` with the address of the `count` bytes that were at `from` when they were shared,
  /// or with `from` itself if they were not shared. To avoid unnecessary copies, read each byte
  /// once and each tensor from front to back.
  void read(
      const std::byte* from, int64_t count, const std::function<void(const std::byte*)>& body);

 private:
  struct Part {
    at::Tensor from, copy;
    int64_t read = 0;     // bytes already read, from the front
    bool copied = false;  // true if the bytes from `read` on have been copied
  };

  std::mutex mutex_;  // locked while bytes are gathered, but not while they are written
  std::map<const std::byte*, Part> parts_;  // by start address
};

}  // namespace lockstep::checkpoint
