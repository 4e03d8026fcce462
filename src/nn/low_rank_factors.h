// Low-rank factors of a linear layer and their gradients (Hu et al., "LoRA: Low-Rank Adaptation of
// Large Language Models", 2021).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "nn/linear_kernel.h"

namespace lockstep::nn {

/// Factors of a linear layer's adapter: leaves A [r, in] and B [out, r], whose type is used for all
/// computation, and dropout of A's input. No autograd support. The forward pass saves only x, in
/// its own type. Temporaries with the rows of x in A's type exist for only one chunk of rows at a
/// time.
struct LowRankFactors {
  double scale = 1;  // s in the formulas
  std::shared_ptr<Dropout> dropout;
  Tensor a, b;
  bool are_on = true;  // false: the factors are ignored

  /// Returns a copy with other values of A and B: those that autograd saved.
  LowRankFactors with(const Tensor& other_a, const Tensor& other_b) const {
    return {scale, dropout, other_a, other_b, are_on};
  }
  /// Returns the input of A: x in A's type, with the dropout mask applied.
  Tensor rows_of(const Tensor& x, const Tensor& drawn) const;
  /// Returns s A rows: [n, in] in A's type -> [n, r].
  Tensor inner(const Tensor& rows) const;
  /// Returns y + s B A dropout(x), rounded once to the type of y. y is [..., out], x is [..., in].
  /// May update y in place, so the caller must own it.
  Tensor add_to(Tensor y, const Tensor& x, const Tensor& drawn) const;
  bool are_trained() const;
  /// Visits lora_A.weight and lora_B.weight.
  void visit(const ParameterFunction& function);
};

/// Visits the rows of a pass, [..., in], in chunks. The dropout mask depends on the index in the
/// whole tensor, so with dropout all rows are converted at once.
class RowParts {
 public:
  RowParts(const LowRankFactors& factors, const Tensor& x, const Tensor& drawn);
  /// Calls function(first, rows [n, in] in A's type) for each chunk, where `first` is the index of
  /// its first row.
  void visit(const std::function<void(int64_t first, const Tensor& rows)>& function) const;

 private:
  const LowRankFactors& factors_;
  Tensor rows_;
};

/// Computes the gradients of x, A and B from the gradient of s B A dropout(x), in chunks of rows.
class LowRankGradients {
 public:
  /// Selects the gradients to compute. x has the type `x_type` and the shape `x_sizes`. `onto` has
  /// the same shape; it is added to the gradient of x before rounding and may be overwritten.
  /// Undefined: nothing is added.
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
  /// Processes all rows: `gradient` [..., out] and x [..., in], in their own types. x may be
  /// undefined if only its gradient is needed.
  void add_all(const Tensor& gradient, const Tensor& x);
  /// Processes one chunk, which starts at row `first`: `gradient` [n, out] and `rows` [n, in] in
  /// A's type.
  void add(int64_t first, const Tensor& gradient, const Tensor& rows);
  /// Adds the gradients of A and B to those of the parameters and runs the hooks that autograd
  /// would run.
  void accumulate() const;
  // Return the gradients; undefined if not requested.
  Tensor take_x();
  const Tensor& of_a() const { return a_; }
  const Tensor& of_b() const { return b_; }

 private:
  /// Processes all rows at once, without converting them to float32 (ops/linear.h).
  void add_products(const Tensor& gradient, const Tensor& x);

  const LowRankFactors& factors_;
  Wanted wanted_;
  at::ScalarType x_type_;
  Tensor drawn_, onto_, x_, a_, b_;
};

/// Calls function(first, count) for chunks of rows. On a CPU, a chunk of rows with `numbers`
/// elements each fits in the cache; on other devices, a memory budget limits the chunk.
void over_row_parts(
    int64_t rows,
    int64_t numbers,
    c10::Device device,
    const std::function<void(int64_t first, int64_t count)>& function);

/// [..., n] -> [rows, n]
Tensor as_rows(const Tensor& x);

}  // namespace lockstep::nn
