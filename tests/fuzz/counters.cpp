// libFuzzer clears and looks through the counters of all that is linked at every input, of which a
// small parser reaches a part of a hundredth. Here it learns of a page of counters when something
// on it is first counted: until then the page cannot be written, and the fault tells. The linker
// puts these functions in the place of libFuzzer's (cmake/Fuzz.cmake).
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

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
constexpr int kWordsOfPlace = 2;  // of the table of places: an address and its flags

uint8_t* counters;
uint8_t* counters_end;
const uintptr_t* places;
std::array<std::atomic_flag, 4096> told;  // of pages; libFuzzer has room for as many
struct sigaction before;

/// libFuzzer's from now on: the part of [begin, end) that is counters.
void tell(uint8_t* begin, uint8_t* end) {
  begin = std::max(begin, counters);
  end = std::min(end, counters_end);
  if (begin < end) {
    __real___sanitizer_cov_8bit_counters_init(begin, end);
    __real___sanitizer_cov_pcs_init(
        places + kWordsOfPlace * (begin - counters), places + kWordsOfPlace * (end - counters));
  }
}

uint8_t* page_of(uint8_t* at) {
  return reinterpret_cast<uint8_t*>(reinterpret_cast<uintptr_t>(at) / kPage * kPage);
}

void take_fault(int signal, siginfo_t* info, void* context) {
  auto* const at = static_cast<uint8_t*>(info->si_addr);
  if (at < counters || at >= counters_end ||
      ::mprotect(page_of(at), kPage, PROT_READ | PROT_WRITE) != 0) {
    before.sa_sigaction(signal, info, context);  // a defect: ASan's
    return;
  }
  const auto number = static_cast<size_t>(page_of(at) - page_of(counters)) / kPage;
  if (!told.at(number).test_and_set()) {  // of two threads the first
    tell(page_of(at), page_of(at) + kPage);
  }
}

}  // namespace

extern "C" {

void __wrap___sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end) {
  counters = begin;  // of the whole program, whichever file's this call is
  counters_end = end;
}

void __wrap___sanitizer_cov_pcs_init(const uintptr_t* begin, const uintptr_t* /*end*/) {
  if (places != nullptr) {
    return;
  }
  places = begin;
  // Pages at both ends hold other variables too.
  uint8_t* const first = page_of(counters + kPage - 1);
  uint8_t* const last = page_of(counters_end);
  tell(counters, first);
  tell(last, counters_end);
  struct sigaction action{};
  action.sa_sigaction = take_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  if (::sigaction(SIGSEGV, &action, &before) != 0 || (before.sa_flags & SA_SIGINFO) == 0 ||
      ::mprotect(first, static_cast<size_t>(last - first), PROT_READ) != 0) {
    std::perror("fuzz: counters cannot be watched");
    std::_Exit(2);
  }
}

int __wrap_LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int taken = __real_LLVMFuzzerTestOneInput(data, size);
  // How deep the stack was would be a feature numbered behind the counters, of which more come.
  __sancov_lowest_stack = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return taken;
}
// NOLINTEND
}
