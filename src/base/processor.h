// Instruction sets for the CPU loops of Lockstep.
#pragma once

namespace lockstep {

/// Each includes the previous ones. kPlain: older x86-64 and other processors.
enum class InstructionSet { kPlain, kAvx2, kAvx512, kAvx512Bfloat16, kAmx };

/// Returns the best instruction set that the processor and the system support, limited by the
/// environment variable LOCKSTEP_MAX_CPU_ISA (avx2, avx512, avx512_bf16, amx). Throws an Error if
/// the variable has another value. Evaluated once.
InstructionSet instruction_set();

/// The same for a given value of the variable; null: not set.
InstructionSet instruction_set_up_to(const char* name);

}  // namespace lockstep
