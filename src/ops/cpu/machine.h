// Matrix instruction sets beyond AVX-512, for the files that are compiled with them (tile.h) and
// for cost models.
#pragma once

namespace lockstep::ops {

/// Each level includes the levels before it.
enum class MatrixUnit { kNone, kAvx512, kBfloat16, kAmx };

/// Returns the highest level that may be used on this processor (base/processor.h).
MatrixUnit find_matrix_unit();

/// The level in use; tests lower it to cover every version.
inline MatrixUnit& matrix_unit() {
  static MatrixUnit found = find_matrix_unit();
  return found;
}

}  // namespace lockstep::ops
