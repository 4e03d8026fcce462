// Sparse coverage counters for libFuzzer. By default libFuzzer clears and scans the counters of the
// whole program for every input, although a small parser reaches less than 1 % of them, and records
// every comparison. Here a counter is registered when it is first incremented, and registered
// counters are stored contiguously. Only pages that were written to are scanned: pages start
// read-only, and the write fault marks them. Comparisons are recorded for one input in eight. The
// linker substitutes these functions for libFuzzer's (cmake/Fuzz.cmake).
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <sys/mman.h>

extern "C" {
// NOLINTBEGIN: their names are the linker's and the compiler's.
void __real___sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end);
void __real___sanitizer_cov_pcs_init(const uintptr_t* begin, const uintptr_t* end);
int __real_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern __thread uintptr_t __sancov_lowest_stack;
}

namespace {

constexpr uintptr_t kPage = 4096;
constexpr size_t kBlock = 64;
constexpr int kWordsOfPlace = 2;  // words per entry of the PC table: an address and its flags
constexpr size_t kTold = 512;     // counters registered with libFuzzer at a time
constexpr unsigned kNotedOf = 8;

uint8_t* counters;
uint8_t* counters_end;
const uintptr_t* places;
struct sigaction before;

/// Memory range to scan: a page, or the part of a page that contains counters.
struct Range {
  uint8_t* begin;
  uint8_t* end;
};
std::array<Range, 4096> ranges;
std::array<std::atomic<bool>, ranges.size()> is_written;
std::atomic<size_t> written;

/// Registered with libFuzzer: the counters that were incremented and their PC table entries.
/// `numbers` maps a counter to its index in `dense` plus 1.
std::unique_ptr<uint8_t[]> dense;
std::unique_ptr<uintptr_t[]> dense_places;
std::unique_ptr<uint32_t[]> numbers;
uint32_t counted;
size_t told;

std::atomic<bool> is_noted = true;  // true if comparisons are recorded

uint8_t* page_of(uint8_t* at) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(at) / kPage * kPage);
}

void tell() {
  const size_t end = told + kTold;
  __real___sanitizer_cov_8bit_counters_init(&dense[told], &dense[end]);
  __real___sanitizer_cov_pcs_init(
      &dense_places[kWordsOfPlace * told], &dense_places[kWordsOfPlace * end]);
  told = end;
}

void take(uint8_t* counter) {
  const auto at = static_cast<size_t>(counter - counters);
  if (numbers[at] == 0) {
    std::copy_n(
        places + kWordsOfPlace * at, kWordsOfPlace, &dense_places[size_t{kWordsOfPlace} * counted]);
    numbers[at] = ++counted;
    if (counted > told) {
      tell();
    }
  }
  dense[numbers[at] - 1] = *counter;
}

void take_bytes(uint8_t* begin, const uint8_t* end) {
  for (; begin < end; ++begin) {
    if (*begin != 0) {
      take(begin);
    }
  }
}

/// Scans whole blocks, most of which are empty.
void take_blocks(uint8_t* begin, const uint8_t* end) {
  std::array<uint64_t, kBlock / sizeof(uint64_t)> words{};
  for (; begin < end; begin += kBlock) {
    std::memcpy(words.data(), begin, kBlock);
    uint64_t any = 0;
    for (const uint64_t word : words) {
      any |= word;
    }
    for (size_t i = 0; any != 0 && i < words.size(); ++i) {
      if (words[i] != 0) {
        take_bytes(begin + i * sizeof(uint64_t), begin + (i + 1) * sizeof(uint64_t));
      }
    }
  }
}

/// Clears the counts that libFuzzer's own code caused between inputs; it shares std functions with
/// the parsers.
void clear() {
  const size_t most = written.load();
  for (size_t i = 0; i < most; ++i) {
    std::memset(ranges[i].begin, 0, static_cast<size_t>(ranges[i].end - ranges[i].begin));
  }
}

/// Collects the counts of one input.
void take_counts() {
  const size_t most = written.load();
  for (size_t i = 0; i < most; ++i) {
    const auto [begin, end] = ranges[i];
    if (static_cast<size_t>(end - begin) == kPage) {
      take_blocks(begin, end);
    } else {
      take_bytes(begin, end);
    }
  }
}

void take_fault(int signal, siginfo_t* info, void* context) {
  auto* const at = static_cast<uint8_t*>(info->si_addr);
  if (at < counters || at >= counters_end ||
      ::mprotect(page_of(at), kPage, PROT_READ | PROT_WRITE) != 0) {
    before.sa_sigaction(signal, info, context);  // a real fault: handled by ASan
    return;
  }
  const auto number = static_cast<size_t>(page_of(at) - page_of(counters)) / kPage;
  if (!is_written.at(number).exchange(true)) {  // only the first of several threads adds the page
    ranges.at(written.fetch_add(1)) = {page_of(at), page_of(at) + kPage};
  }
}

}  // namespace

extern "C" {

void __wrap___sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end) {
  counters = begin;  // the linker merges the counters of all files
  counters_end = end;
}

void __wrap___sanitizer_cov_pcs_init(const uintptr_t* begin, const uintptr_t* /*end*/) {
  if (places != nullptr) {
    return;
  }
  places = begin;
  const auto all = static_cast<size_t>(counters_end - counters);
  dense = std::make_unique<uint8_t[]>(all + kTold);
  dense_places = std::make_unique<uintptr_t[]>(kWordsOfPlace * (all + kTold));
  numbers = std::make_unique<uint32_t[]>(all);
  tell();
  // The first and the last page also contain other variables.
  uint8_t* const first = page_of(counters + kPage - 1);
  uint8_t* const last = page_of(counters_end);
  ranges[0] = {counters, first};
  ranges[1] = {last, counters_end};
  written = 2;
  struct sigaction action{};
  action.sa_sigaction = take_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  if (::sigaction(SIGSEGV, &action, &before) != 0 || (before.sa_flags & SA_SIGINFO) == 0 ||
      ::mprotect(first, static_cast<size_t>(last - first), PROT_READ) != 0) {
    std::perror("fuzz: cannot protect the counters");
    std::_Exit(2);
  }
}

int __wrap_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static unsigned number = 0;
  clear();
  is_noted.store(++number % kNotedOf == 0, std::memory_order_relaxed);
  const int taken = __real_LLVMFuzzerTestOneInput(data, size);
  take_counts();
  // Hide the stack depth from libFuzzer: it would be a feature numbered after the counters, whose
  // number grows.
  __sancov_lowest_stack = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return taken;
}

// libFuzzer keeps the last few dozen compared values and substitutes one operand for the other.
#define LOCKSTEP_COMPARED(kind, first_type, second_type)                           \
  void __real___sanitizer_cov_trace_##kind(first_type first, second_type second);  \
  void __wrap___sanitizer_cov_trace_##kind(first_type first, second_type second) { \
    if (is_noted.load(std::memory_order_relaxed)) {                                \
      __real___sanitizer_cov_trace_##kind(first, second);                          \
    }                                                                              \
  }
LOCKSTEP_COMPARED(cmp1, uint8_t, uint8_t)
LOCKSTEP_COMPARED(cmp2, uint16_t, uint16_t)
LOCKSTEP_COMPARED(cmp4, uint32_t, uint32_t)
LOCKSTEP_COMPARED(cmp8, uint64_t, uint64_t)
LOCKSTEP_COMPARED(const_cmp1, uint8_t, uint8_t)
LOCKSTEP_COMPARED(const_cmp2, uint16_t, uint16_t)
LOCKSTEP_COMPARED(const_cmp4, uint32_t, uint32_t)
LOCKSTEP_COMPARED(const_cmp8, uint64_t, uint64_t)
LOCKSTEP_COMPARED(switch, uint64_t, uint64_t*)
// NOLINTEND
}
