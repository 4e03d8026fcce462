// Implements a SIGBUS handler that prints the file of a failed memory-mapped access.
#include "base/mapped_ranges.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>

#include <unistd.h>

namespace lockstep {
namespace {

/// Mapping, stored such that a signal handler can read it.
struct MappedRange {
  std::atomic<uintptr_t> begin;  // 0: unused
  size_t size;
  std::array<char, 512> path;
};
std::array<MappedRange, 1024>
    mapped_ranges;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void say(std::string_view text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

void on_bus_error(int signal, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const MappedRange& range : mapped_ranges) {
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address - begin < range.size) {
      say("error: ");
      say(range.path.data());
      say(" was truncated while it was read, or its disk failed\n  try: do not let other programs "
          "write to it; remove it if it can be created again\n");
      break;
    }
  }
  std::signal(signal, SIG_DFL);  // the repeated access then ends the process
}

void install_once() {
  static const bool installed = [] {
    struct sigaction old{};
    if (::sigaction(SIGBUS, nullptr, &old) == 0 && old.sa_handler == SIG_DFL) {
      struct sigaction action{};
      action.sa_sigaction = on_bus_error;
      action.sa_flags = SA_SIGINFO;
      sigemptyset(&action.sa_mask);
      ::sigaction(SIGBUS, &action, nullptr);
    }
    return true;
  }();
  (void)installed;
}

std::mutex& range_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

void note_mapping(const void* begin, size_t size, const std::filesystem::path& path) {
  install_once();
  const std::scoped_lock lock(range_mutex());
  for (MappedRange& range : mapped_ranges) {
    if (range.begin.load(std::memory_order_relaxed) == 0) {
      const std::string& name = path.native();
      const size_t length = std::min(name.size(), range.path.size() - 1);
      std::memcpy(
          range.path.data(), name.data() + (name.size() - length), length);  // end of the path
      range.path[length] = '\0';
      range.size = size;
      range.begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
      return;
    }
  }
}

void forget_mapping(const void* begin) {
  const std::scoped_lock lock(range_mutex());
  for (MappedRange& range : mapped_ranges) {
    if (range.begin.load(std::memory_order_relaxed) == reinterpret_cast<uintptr_t>(begin)) {
      range.begin.store(0, std::memory_order_release);
      return;
    }
  }
}

}  // namespace lockstep
