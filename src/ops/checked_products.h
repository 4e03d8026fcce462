// Matrix products verified by checksums (Huang and Abraham, "Algorithm-based fault tolerance for
// matrix operations", 1984): each row of A B sums to that row of A times the row sums of B. A wrong
// element is detected if its error exceeds rounding; the product is then computed again.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Enables or disables the check for this process: products of linear layers and of the head of
/// language models, and of their gradients, on the CPU. Each check reads every operand three more
/// times.
void check_products(bool on);
bool checks_products();
/// Returns the number of products that were wrong at first and correct when computed again.
int64_t wrong_products();

/// A row with a wrong sum: actual sum, expected sum, and tolerance.
struct OddRow {
  int64_t row = 0;
  double sum = 0, expected = 0, tolerance = 0;
};
/// Returns the row of result [m, n] = left [m, k] x right [k, n] (+ bias [n]) with the largest
/// deviation, if any exceeds its tolerance. Skips rows whose operands are not finite. Records
/// nothing for autograd.
std::optional<OddRow> find_odd_row(
    const Tensor& result, const Tensor& left, const Tensor& right, const Tensor& bias = Tensor());

/// Checks a product after it was computed, if this process checks products. If the sums do not
/// match, logs a warning and calls `again`, which computes `result` again. A second result with the
/// same bits is accepted with a warning: the deviation is rounding or a reproducible processor
/// error. Throws Error (numeric) if the second result differs from the first and is wrong too.
void check_product(
    const Tensor& result,
    const Tensor& left,
    const Tensor& right,
    const Tensor& bias,
    const std::function<void()>& again);

}  // namespace lockstep::ops
