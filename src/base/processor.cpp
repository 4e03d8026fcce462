// Detects the instruction sets of this processor.
#include "base/processor.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace lockstep {
namespace {

constexpr const char* kVariable = "LOCKSTEP_MAX_CPU_ISA";
constexpr std::array<std::pair<const char*, InstructionSet>, 4> kNames{
    {{"avx2", InstructionSet::kAvx2},
     {"avx512", InstructionSet::kAvx512},
     {"avx512_bf16", InstructionSet::kAvx512Bfloat16},
     {"amx", InstructionSet::kAmx}}};

#if defined(__x86_64__)
/// Requests permission to use AMX tiles, which Linux requires since version 5.16.
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

InstructionSet of_processor(InstructionSet most) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    return InstructionSet::kPlain;
  }
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!has_avx512 || most < InstructionSet::kAvx512) {
    return InstructionSet::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512bf16") || most < InstructionSet::kAvx512Bfloat16) {
    return InstructionSet::kAvx512;
  }
  return most >= InstructionSet::kAmx && may_use_amx() ? InstructionSet::kAmx
                                                       : InstructionSet::kAvx512Bfloat16;
#else
  (void)most;
  return InstructionSet::kPlain;
#endif
}

}  // namespace

InstructionSet instruction_set_up_to(const char* name) {
  if (name == nullptr) {
    return of_processor(InstructionSet::kAmx);
  }
  const auto* const found = std::ranges::find_if(
      kNames, [&](const auto& entry) { return std::string_view(entry.first) == name; });
  if (found != kNames.end()) {
    return of_processor(found->second);
  }
  std::vector<std::string> names;
  for (const auto& [known, set] : kNames) {
    names.emplace_back(known);
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format("{}={} is not an instruction set", kVariable, name),
      fmt::format("unset it, or set it to one of {}", fmt::join(names, ", ")));
}

InstructionSet instruction_set() {
  static const InstructionSet found = instruction_set_up_to(std::getenv(kVariable));
  return found;
}

}  // namespace lockstep
