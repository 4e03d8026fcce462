// A file that is read and written by offset while the caller goes on: through io_uring where the
// system allows it, else by threads of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace lockstep::parallel {

/// One thread calls. The memory of a transfer must live until wait() returns.
class AsyncFile {
 public:
  enum class Engine { kAuto, kUring, kThreads };
  using Ticket = uint64_t;

  /// Creates the file, without a name that outlives it: it is gone when the process ends, however
  /// it ends. Error (environment) where the folder cannot be written, or where kUring is asked for
  /// and not allowed.
  static std::unique_ptr<AsyncFile> create(
      const std::filesystem::path& folder, Engine engine = Engine::kAuto);
  virtual ~AsyncFile() = default;

  virtual Ticket read(uint64_t offset, std::span<std::byte> to) = 0;
  virtual Ticket write(uint64_t offset, std::span<const std::byte> from) = 0;
  /// Blocks until that transfer has ended. Error (environment) that names the folder where it
  /// failed: a full disk.
  virtual void wait(Ticket ticket) = 0;
  virtual Engine engine() const = 0;
};

}  // namespace lockstep::parallel
