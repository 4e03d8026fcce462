// Matrix instruction sets beyond AVX-512. Used by the files that are compiled with them (tile.h)
// and by cost models.
#pragma once

namespace lockstep::ops {

/// Each level includes the previous levels.
enum class MatrixUnit { kNone, kAvx512, kBfloat16, kAmx };

/// Returns the highest level that may be used on this processor (base/processor.h).
MatrixUnit find_matrix_unit();

/// The level in use. Tests lower it to cover all versions.
inline MatrixUnit& matrix_unit() {
  static MatrixUnit found = find_matrix_unit();
  return found;
}

}  // namespace lockstep::ops
