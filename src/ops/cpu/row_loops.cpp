// Selection of row loops for this processor, and the element order for 4-bit codes.
#include "ops/cpu/row_loops.h"

#include "ops/cpu/vector.h"

namespace lockstep::ops::kernel {

const RowLoops* row_loops() {
#if defined(__x86_64__)
  switch (vector::level()) {
    case vector::Level::kAvx512:
      return &kRowLoopsAvx512;
    case vector::Level::kAvx2:
      return &kRowLoopsAvx2;
    case vector::Level::kPlain:
      break;
  }
#endif
  return nullptr;
}

// The loops read two bytes of codes as a word. The lowest four bits of the word are its second
// element, and so on. Each step has sixteen words, and elements at the same position in their words
// become adjacent.
void order_by_codes(const FewRows& rows, float* to) {
  constexpr int64_t kElement[] = {1, 0, 3, 2};
  for (int64_t step = 0; step < rows.count * rows.width; step += kCodesAtOnce) {
    for (int64_t i = 0; i < kCodesAtOnce; ++i) {
      to[step + i] = rows.data[step + i % 16 * 4 + kElement[i / 16]];
    }
  }
}

}  // namespace lockstep::ops::kernel
