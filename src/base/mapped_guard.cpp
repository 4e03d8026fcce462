#include "base/mapped_guard.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>

#include <unistd.h>

namespace lockstep {
namespace {

// Plain memory that a handler may read at any time. What finds no place is not named.
struct Mapping {
  std::atomic<uintptr_t> begin{0};  // 0: free; written last
  size_t size = 0;
  std::array<char, 512> path{};
};
std::array<Mapping, 1024> mappings;

std::mutex& mapping_mutex() {
  static auto* const one = new std::mutex;  // never destroyed: files are unmapped until the end
  return *one;
}

void say(const char* text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// Only what a handler may call. On return the read fails again, and ends the process.
void tell_which_file(int signal, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Mapping& mapping : mappings) {
    const uintptr_t begin = mapping.begin;
    if (begin != 0 && address >= begin && address - begin < mapping.size) {
      say("error: ");
      say(mapping.path.data());
      say(" ended or cannot be read any more: another program cut it, or its disk failed\n"
          "  try: make it anew, and leave it alone while it is in use\n");
      break;
    }
  }
  struct sigaction plain{};
  plain.sa_handler = SIG_DFL;
  ::sigaction(signal, &plain, nullptr);
}

void install_handler() {
  struct sigaction present{};
  if (::sigaction(SIGBUS, nullptr, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
      present.sa_handler == SIG_DFL) {
    struct sigaction ours{};
    ours.sa_sigaction = tell_which_file;
    ours.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &ours, nullptr);
  }
}

}  // namespace

void guard_mapping(const void* data, size_t size, const std::filesystem::path& path) {
  static const bool installed = (install_handler(), true);
  (void)installed;
  const std::lock_guard lock(mapping_mutex());
  const auto free = std::find_if(
      mappings.begin(), mappings.end(), [](const Mapping& one) { return one.begin == 0; });
  if (free != mappings.end()) {
    const std::string& text = path.native();
    const size_t length = std::min(text.size(), free->path.size() - 1);
    std::memcpy(free->path.data(), text.data(), length);
    free->path[length] = '\0';
    free->size = size;
    free->begin = reinterpret_cast<uintptr_t>(data);
  }
}

void forget_mapping(const void* data) {
  const std::lock_guard lock(mapping_mutex());
  for (Mapping& mapping : mappings) {
    if (mapping.begin == reinterpret_cast<uintptr_t>(data)) {
      mapping.begin = 0;
    }
  }
}

}  // namespace lockstep
