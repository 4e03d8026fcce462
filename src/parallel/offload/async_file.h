// File with asynchronous reads and writes by offset. Uses io_uring if the system permits it, and
// threads otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace lockstep::parallel {

/// Not thread-safe. The memory of a transfer must stay valid until wait() returns.
class AsyncFile {
 public:
  enum class Engine { kAuto, kUring, kThreads };
  using Ticket = uint64_t;

  /// Creates an unnamed file, which the system deletes when the process ends for any reason. Throws
  /// Error (environment) if the folder is not writable, or if kUring is requested but not
  /// permitted.
  static std::unique_ptr<AsyncFile> create(
      const std::filesystem::path& folder, Engine engine = Engine::kAuto);
  virtual ~AsyncFile() = default;

  virtual Ticket read(uint64_t offset, std::span<std::byte> to) = 0;
  virtual Ticket write(uint64_t offset, std::span<const std::byte> from) = 0;
  /// Blocks until the transfer has ended. Throws Error (environment) that names the folder if the
  /// transfer failed (for example, because the disk is full).
  virtual void wait(Ticket ticket) = 0;
  virtual Engine engine() const = 0;
};

}  // namespace lockstep::parallel
