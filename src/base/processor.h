// Instruction sets used by Lockstep's CPU loops.
#pragma once

namespace lockstep {

/// Instruction sets. Each includes the previous ones. kPlain is for older x86-64 and other
/// processors.
enum class InstructionSet { kPlain, kAvx2, kAvx512, kAvx512Bfloat16, kAmx };

/// Returns the best instruction set supported by the processor and the system, limited by the
/// environment variable LOCKSTEP_MAX_CPU_ISA (avx2, avx512, avx512_bf16, amx). Throws an Error if
/// the variable has another value. Evaluated once.
InstructionSet instruction_set();

/// Variant with an explicit value of the variable; null: not set.
InstructionSet instruction_set_up_to(const char* name);

}  // namespace lockstep
