#include "ops/machine.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace lockstep::ops {
namespace {

#if defined(__x86_64__)
/// AMX's tiles are state that a process has to ask for (Linux 5.16).
bool may_use_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAmxBfloat16 = 1U << 22, kAmxTile = 1U << 24;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAmxBfloat16) == 0 ||
      (edx & kAmxTile) == 0) {
    return false;
  }
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

MatrixUnit find_matrix_unit() {
#if defined(__x86_64__)
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
  if (has_avx512) {
    if (!__builtin_cpu_supports("avx512bf16")) {
      return MatrixUnit::kAvx512;
    }
    return may_use_amx() ? MatrixUnit::kAmx : MatrixUnit::kBfloat16;
  }
#endif
  return MatrixUnit::kNone;
}

}  // namespace lockstep::ops
