// The instructions that our own loops for CPUs may use.
#pragma once

namespace lockstep {

/// Each with those before it. Other processors than x86-64, and older ones, have kPlain.
enum class InstructionSet { kPlain, kAvx2, kAvx512, kAvx512Bfloat16, kAmx };

/// What this processor has and its system lets a program use; no more than the environment variable
/// LOCKSTEP_MAX_CPU_ISA says (avx2, avx512, avx512_bf16, amx), which throws an Error where it is
/// something else. Read once.
InstructionSet instruction_set();

/// The same for a given value of the variable; null: there is none.
InstructionSet instruction_set_up_to(const char* name);

}  // namespace lockstep
