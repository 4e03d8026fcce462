#include "ops/cpu/machine.h"

#include "base/processor.h"

namespace lockstep::ops {

MatrixUnit find_matrix_unit() {
  switch (instruction_set()) {
    case InstructionSet::kAmx:
      return MatrixUnit::kAmx;
    case InstructionSet::kAvx512Bfloat16:
      return MatrixUnit::kBfloat16;
    case InstructionSet::kAvx512:
      return MatrixUnit::kAvx512;
    case InstructionSet::kAvx2:
    case InstructionSet::kPlain:
      break;
  }
  return MatrixUnit::kNone;
}

}  // namespace lockstep::ops
