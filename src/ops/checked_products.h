// Products of matrices that are checked by their sums (Huang and Abraham, "Algorithm-based fault
// tolerance for matrix operations", 1984): each row of A B adds up to that row of A times the sums
// of B's rows. What a processor gets wrong in one element shows if it is more than what rounding
// explains; such a product is made once more.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

using at::Tensor;

/// Whether this process checks products on the CPU from now on: those of linear layers and of the
/// head of language models, and of their gradients. It costs three more reads of each operand.
void check_products(bool on);
bool checks_products();
/// Those that were found wrong so far, and right when they were made once more.
int64_t wrong_products();

/// A row that does not add up: what it adds up to, and to what it should, within `tolerance`.
struct OddRow {
  int64_t row = 0;
  double sum = 0, expected = 0, tolerance = 0;
};
/// Of result [m, n], said to be left [m, k] x right [k, n] (+ bias [n]), the row that is farthest
/// off, if any is. Rows whose operands are not finite have no sum and are passed over. No autograd.
std::optional<OddRow> find_odd_row(
    const Tensor& result, const Tensor& left, const Tensor& right, const Tensor& bias = Tensor());

/// After a product was made: where this process checks products and this one does not add up,
/// `again` writes it to `result` once more, with a warning. What comes out the same to the bit is
/// taken, with a warning: it is rounding, or a processor that goes wrong the same way each time.
/// Error (kNumeric): the second result is another one, and does not add up either.
void check_product(
    const Tensor& result,
    const Tensor& left,
    const Tensor& right,
    const Tensor& bias,
    const std::function<void()>& again);

}  // namespace lockstep::ops
