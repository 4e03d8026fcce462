// Memory that a save reads while training goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include <ATen/core/Tensor.h>

namespace lockstep::checkpoint {

/// A save reads the state of a step where it is, on the host, until training is about to write to
/// it: what has not been read by then is copied first, and read from the copy. A step's forward and
/// backward pass leave the state alone, so most saves need no copy.
class CopyOnWriteState {
 public:
  /// Of the training thread, while nobody reads. Both are flat bytes, `copy` for what `from` holds.
  /// False if some of `from` is lent already: it is not lent twice.
  bool lend(const at::Tensor& from, const at::Tensor& copy);
  /// Of the training thread: once it returns, what was lent may be written to.
  void before_state_update();
  /// Of the thread that reads: nobody will read any more.
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
    bool copied = false;  // the others
  };

  std::mutex mutex_;  // held while something is gathered, not while it is written
  std::map<const std::byte*, Part> parts_;  // by where they begin
};

}  // namespace lockstep::checkpoint
