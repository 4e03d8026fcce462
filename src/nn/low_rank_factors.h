// Low-rank factors of a linear layer and their gradients (Hu et al., "LoRA: Low-Rank Adaptation of
// Large Language Models", 2021).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "nn/linear_kernel.h"

namespace lockstep::nn {

/// Factors of a linear layer's adapter: A [r, in] and B [out, r], leaves of their own type, which
/// all computation uses, and dropout of A's input. Without autograd. The forward pass saves only x,
/// in its own type; temporaries of x's length in A's type exist for one chunk of rows at a time.
struct LowRankFactors {
  double scale = 1;  // s
  std::shared_ptr<Dropout> dropout;
  Tensor a, b;
  bool are_on = true;  // if false, the factors are ignored

  /// The same with other values of A and B: those that autograd saved.
  LowRankFactors with(const Tensor& other_a, const Tensor& other_b) const {
    return {scale, dropout, other_a, other_b, are_on};
  }
  /// Input of A: x in A's type, with the dropout mask applied.
  Tensor rows_of(const Tensor& x, const Tensor& drawn) const;
  /// s A rows: [n, in] in A's type -> [n, r]
  Tensor inner(const Tensor& rows) const;
  /// Returns y + s B A dropout(x), rounded once to y's type: y [..., out], x [..., in]. May update
  /// y in place; the caller must own it.
  Tensor add_to(Tensor y, const Tensor& x, const Tensor& drawn) const;
  bool are_trained() const;
  /// Visits lora_A.weight and lora_B.weight.
  void visit(const ParameterFunction& function);
};

/// Rows of a pass, [..., in], visited in chunks. The dropout mask depends on the index in the whole
/// tensor, so with dropout all rows are converted at once.
class RowParts {
 public:
  RowParts(const LowRankFactors& factors, const Tensor& x, const Tensor& drawn);
  /// Calls function(first, rows [n, in] in A's type) for chunks of rows that start at row `first`.
  void visit(const std::function<void(int64_t first, const Tensor& rows)>& function) const;

 private:
  const LowRankFactors& factors_;
  Tensor rows_;
};

/// Gradients of x, A and B from the gradient of s B A dropout(x), computed in row chunks.
class LowRankGradients {
 public:
  /// Gradients to compute. x has type `x_type` and shape `x_sizes`. `onto` has the same shape: it
  /// is added to the gradient of x before rounding and may be overwritten; undefined: none.
  struct Wanted {
    bool x = false, a = false, b = false;
  };
  LowRankGradients(
      const LowRankFactors& factors,
      Wanted wanted,
      at::IntArrayRef x_sizes,
      at::ScalarType x_type,
      const Tensor& drawn,
      const Tensor& onto = {});
  /// Processes all rows: the gradient [..., out] and x [..., in], in their own types. x may be
  /// undefined if only its gradient is wanted.
  void add_all(const Tensor& gradient, const Tensor& x);
  /// Processes one chunk: `gradient` [n, out] and `rows` [n, in] in A's type, starting at row
  /// `first`.
  void add(int64_t first, const Tensor& gradient, const Tensor& rows);
  /// Adds the gradients of A and B to the parameters' and runs the hooks that autograd would run.
  void accumulate() const;
  // Undefined if not wanted.
  Tensor take_x();
  const Tensor& of_a() const { return a_; }
  const Tensor& of_b() const { return b_; }

 private:
  /// All rows at once, without float32 copies of them (ops/linear.h).
  void add_products(const Tensor& gradient, const Tensor& x);

  const LowRankFactors& factors_;
  Wanted wanted_;
  at::ScalarType x_type_;
  Tensor drawn_, onto_, x_, a_, b_;
};

/// Calls function(first, count) for chunks of rows. A chunk of rows with `numbers` elements each
/// fits in the CPU cache; on other devices it is limited by a memory budget.
void over_row_parts(
    int64_t rows,
    int64_t numbers,
    c10::Device device,
    const std::function<void(int64_t first, int64_t count)>& function);

/// [..., n] -> [rows, n]
Tensor as_rows(const Tensor& x);

}  // namespace lockstep::nn
