// Asynchronous file I/O by io_uring or threads.
#include "parallel/offload/async_file.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "parallel/offload/uring.h"

namespace lockstep::parallel {
namespace {

constexpr size_t kThreads = 2;

Error failure(const std::filesystem::path& folder, int number, const char* action) {
  errno = number;
  Error error = system_error(ErrorKind::kEnvironment, action, folder);
  return error;
}

/// File descriptor of an unnamed file.
class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& folder) : folder_(folder) {
    create_folders(folder, ErrorKind::kEnvironment);
    std::string name = (folder / "lockstep-offload-XXXXXX").string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) {
      throw failure(folder_, errno, "create a file in");
    }
    ::unlink(name.c_str());
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(descriptor_); }
  int get() const { return descriptor_; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  int descriptor_ = -1;
};

struct Transfer {
  bool writes = false;
  uint64_t offset = 0;
  std::byte* bytes = nullptr;
  size_t count = 0;
};

/// Completes the rest of a transfer synchronously. Returns an errno value, 0 on success.
int transfer_now(int descriptor, Transfer t) {
  while (t.count > 0) {
    const auto at = static_cast<off_t>(t.offset);
    const ssize_t done = t.writes ? ::pwrite(descriptor, t.bytes, t.count, at)
                                  : ::pread(descriptor, t.bytes, t.count, at);
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      return done < 0 ? errno : EIO;  // unexpected end of file
    }
    t.offset += static_cast<uint64_t>(done);
    t.bytes += done;
    t.count -= static_cast<size_t>(done);
  }
  return 0;
}

const char* action_of(const Transfer& t) {
  return t.writes ? "write offloaded state in" : "read offloaded state in";
}

class ThreadedFile final : public AsyncFile {
 public:
  explicit ThreadedFile(const std::filesystem::path& folder) : file_(folder) {
    for (size_t i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this] { serve(); });
    }
  }
  ~ThreadedFile() override {
    {
      const std::scoped_lock lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  Ticket read(uint64_t offset, std::span<std::byte> to) override {
    return submit({false, offset, to.data(), to.size()});
  }
  Ticket write(uint64_t offset, std::span<const std::byte> from) override {
    return submit({true, offset, const_cast<std::byte*>(from.data()), from.size()});
  }
  void wait(Ticket ticket) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(ticket); });
    const auto [number, action] = done_.extract(ticket).mapped();
    if (number != 0) {
      throw failure(file_.folder(), number, action);
    }
  }
  Engine engine() const override { return Engine::kThreads; }

 private:
  Ticket submit(const Transfer& transfer) {
    const std::scoped_lock lock(mutex_);
    queue_.emplace_back(++last_, transfer);
    changed_.notify_all();
    return last_;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ends_ || !queue_.empty(); });
      if (ends_) {
        return;
      }
      const auto [ticket, transfer] = queue_.front();
      queue_.pop_front();
      lock.unlock();
      const int number = transfer_now(file_.get(), transfer);
      lock.lock();
      done_[ticket] = {number, action_of(transfer)};
      changed_.notify_all();
    }
  }

  Descriptor file_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Ticket, Transfer>> queue_;
  std::map<Ticket, std::pair<int, const char*>> done_;
  Ticket last_ = 0;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

class UringFile final : public AsyncFile {
 public:
  explicit UringFile(const std::filesystem::path& folder) : file_(folder) {}
  ~UringFile() override {
    try {
      while (!running_.empty()) {
        take_one();  // the kernel may still access memory that its owner is about to free
      }
    } catch (const Error&) {  // the ring has failed and reports no more completions
    }
  }

  Ticket read(uint64_t offset, std::span<std::byte> to) override {
    return submit({false, offset, to.data(), to.size()});
  }
  Ticket write(uint64_t offset, std::span<const std::byte> from) override {
    return submit({true, offset, const_cast<std::byte*>(from.data()), from.size()});
  }
  void wait(Ticket ticket) override {
    while (running_.contains(ticket)) {
      take_one();
    }
    const auto [number, action] = done_.extract(ticket).mapped();
    if (number != 0) {
      throw failure(file_.folder(), number, action);
    }
  }
  Engine engine() const override { return Engine::kUring; }

 private:
  Ticket submit(const Transfer& transfer) {
    while (running_.size() >= Uring::kEntries) {
      take_one();
    }
    const Ticket ticket = ++last_;
    start(ticket, transfer);  // must be first: if it throws, the ticket is not registered
    running_[ticket] = transfer;
    return ticket;
  }
  void start(Ticket ticket, const Transfer& t) {
    constexpr size_t kMost = size_t{1} << 30;  // the kernel transfers at most 2 GiB per call
    ring_.submit(
        t.writes ? Uring::Operation::kWrite : Uring::Operation::kRead,
        file_.get(),
        t.bytes,
        static_cast<uint32_t>(std::min(t.count, kMost)),
        t.offset,
        ticket);
  }
  void take_one() {
    const Uring::Completion completion = ring_.wait();
    Transfer& t = running_.at(completion.tag);
    const bool again = completion.result == -EINTR || completion.result == -EAGAIN;
    const size_t moved = completion.result > 0 ? static_cast<size_t>(completion.result) : 0;
    t.offset += moved;
    t.bytes += moved;
    t.count -= moved;
    if (t.count > 0 && (moved > 0 || again)) {
      start(completion.tag, t);
      return;
    }
    const int number = t.count == 0 ? 0 : completion.result < 0 ? -completion.result : EIO;
    done_[completion.tag] = {number, action_of(t)};
    running_.erase(completion.tag);
  }

  Descriptor file_;
  Uring ring_;
  std::map<Ticket, Transfer> running_;
  std::map<Ticket, std::pair<int, const char*>> done_;
  Ticket last_ = 0;
};

}  // namespace

std::unique_ptr<AsyncFile> AsyncFile::create(const std::filesystem::path& folder, Engine engine) {
  const bool uring = engine != Engine::kThreads && Uring::is_allowed();
  if (engine == Engine::kUring && !uring) {
    throw Error(ErrorKind::kEnvironment, "io_uring is not permitted on this system");
  }
  if (uring) {
    return std::make_unique<UringFile>(folder);
  }
  return std::make_unique<ThreadedFile>(folder);
}

}  // namespace lockstep::parallel
