// Matrix products that are verified by checksums (Huang and Abraham, "Algorithm-based fault
// tolerance for matrix operations", 1984). The sum of each row of A B equals the same row of A
// times the row sums of B. An error that exceeds rounding is detected, and the product is computed
// again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Enables or disables verification in this process, on the CPU: for linear layers, for the
/// language model head, and for their gradients. Verification reads every operand three more times.
void check_products(bool on);
bool checks_products();
/// Returns the number of products that were wrong at first and correct after recomputation.
int64_t wrong_products();

/// A row with a wrong sum: its actual sum, its expected sum, and the tolerance.
struct OddRow {
  int64_t row = 0;
  double sum = 0, expected = 0, tolerance = 0;
};
/// Returns the row of result [m, n] = left [m, k] x right [k, n] (+ bias [n]) with the largest
/// deviation, if it exceeds its tolerance. Skips rows whose operands contain NaN or Inf. Records
/// nothing for autograd.
std::optional<OddRow> find_odd_row(
    const Tensor& result, const Tensor& left, const Tensor& right, const Tensor& bias = Tensor());

/// Verifies a computed product, if verification is enabled. If the sums do not match, logs a
/// warning and calls `again`, which must recompute `result`. A second result with the same bits is
/// accepted with a warning: the deviation is then rounding or a reproducible processor error.
/// Throws Error (numeric) if the second result differs from the first and is also wrong.
void check_product(
    const Tensor& result,
    const Tensor& left,
    const Tensor& right,
    const Tensor& bias,
    const std::function<void()>& again);

}  // namespace lockstep::ops
