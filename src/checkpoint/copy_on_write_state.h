// Copy-on-write sharing of training state with the saver thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include <ATen/core/Tensor.h>

namespace lockstep::checkpoint {

/// Training state that the saver thread reads in place until training modifies it. Bytes that have
/// not been read by then are copied first, and read from the copy. Forward and backward passes do
/// not modify the state, so most saves copy nothing.
class CopyOnWriteState {
 public:
  /// Shares `from` with the saver thread. Must be called on the training thread while no save is
  /// reading. Both tensors must be flat bytes of the same size. Returns false if a part of `from`
  /// is already shared.
  bool lend(const at::Tensor& from, const at::Tensor& copy);
  /// Copies the unread bytes, so that the shared tensors may be modified. Must be called on the
  /// training thread.
  void before_state_update();
  /// Must be called on the saver thread when it has finished reading.
  void end();
  /// Calls `body` with the address of the `count` bytes that were at `from` when they were shared.
  /// If they were not shared, the address is `from`. To avoid unnecessary copies, each byte should
  /// be read only once, and each tensor from its start to its end.
  void read(
      const std::byte* from, int64_t count, const std::function<void(const std::byte*)>& body);

 private:
  struct Part {
    at::Tensor from, copy;
    int64_t read = 0;     // bytes already read, from the start
    bool copied = false;  // the bytes after `read` have been copied
  };

  std::mutex mutex_;  // locked while bytes are gathered, not while they are written
  std::map<const std::byte*, Part> parts_;  // by start address
};

}  // namespace lockstep::checkpoint
