// What a processor has beyond AVX-512, for the files that are compiled with its instructions
// (tile.h), and for those who count what these need.
#pragma once

namespace lockstep::ops {

/// Each with those before it.
enum class MatrixUnit { kNone, kAvx512, kBfloat16, kAmx };

/// The best that may be used here (base/processor.h).
MatrixUnit find_matrix_unit();

/// That; tests lower it, to see every version.
inline MatrixUnit& matrix_unit() {
  static MatrixUnit found = find_matrix_unit();
  return found;
}

}  // namespace lockstep::ops
