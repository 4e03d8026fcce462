// The low-rank factors beside a linear's weight, and their gradients (Hu et al., "LoRA: Low-Rank
// Adaptation of Large Language Models", 2021).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "nn/linear_kernel.h"

namespace lockstep::nn {

/// What every adapter of a linear is made of: A [r, in] and B [out, r], leaves of a type of their
/// own, in which all of it is computed, and dropout of A's input. No autograd: of a pass only x is
/// kept, in its own type, and what is as long as it in A's type exists for some rows at a time.
struct LowRankFactors {
  double scale = 1;  // s
  std::shared_ptr<Dropout> dropout;
  Tensor a, b;
  bool are_on = true;  // else they stand beside the base for nothing

  /// The same beside other values of A and B: those that autograd saved.
  LowRankFactors with(const Tensor& other_a, const Tensor& other_b) const {
    return {scale, dropout, other_a, other_b, are_on};
  }
  /// What A reads: x in A's type, under the mask.
  Tensor rows_of(const Tensor& x, const Tensor& drawn) const;
  /// s A rows: [n, in] in A's type -> [n, r]
  Tensor inner(const Tensor& rows) const;
  /// y + s B A dropout(x), rounded once to y's type: y [..., out], x [..., in]. It may be written
  /// over y, which is nobody else's.
  Tensor add_to(Tensor y, const Tensor& x, const Tensor& drawn) const;
  bool are_trained() const;
  /// lora_A.weight and lora_B.weight.
  void visit(const ParameterFunction& function);
};

/// The rows of a pass, [..., in], a part after the other. Dropout's mask goes by places in the
/// whole, so that with it they are all there at once.
class RowParts {
 public:
  RowParts(const LowRankFactors& factors, const Tensor& x, const Tensor& drawn);
  /// Calls function(first, rows [n, in] in A's type) for neighbouring rows, from row `first` on.
  void visit(const std::function<void(int64_t first, const Tensor& rows)>& function) const;

 private:
  const LowRankFactors& factors_;
  Tensor rows_;
};

/// The gradients of x, A and B from that of s B A dropout(x), a part of the rows after the other.
class LowRankGradients {
 public:
  /// What is wanted; x in `x_type`, of `x_sizes`. `onto`: of these sizes, what is added to the
  /// gradient of x before that is rounded, and nobody else's; undefined: nothing.
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
  /// Of all rows: the gradient [..., out] and x [..., in], in their own types; x may be undefined
  /// where its gradient alone is wanted.
  void add_all(const Tensor& gradient, const Tensor& x);
  /// Of some: `gradient` [n, out] and `rows` [n, in] in A's type, from row `first` on.
  void add(int64_t first, const Tensor& gradient, const Tensor& rows);
  /// Adds those of A and B to the parameters', with the hooks that autograd would call.
  void accumulate() const;
  // Undefined where not wanted.
  Tensor take_x();
  const Tensor& of_a() const { return a_; }
  const Tensor& of_b() const { return b_; }

 private:
  /// Whole, without float32 of their length (ops/linear.h).
  void add_products(const Tensor& gradient, const Tensor& x);

  const LowRankFactors& factors_;
  Wanted wanted_;
  at::ScalarType x_type_;
  Tensor drawn_, onto_, x_, a_, b_;
};

/// Calls function(first, count) for parts of so many rows, such that a part of numbers in a row is
/// no more than a cache holds, or on another device than the CPU some memory.
void over_row_parts(
    int64_t rows,
    int64_t numbers,
    c10::Device device,
    const std::function<void(int64_t first, int64_t count)>& function);

/// [..., n] -> [rows, n]
Tensor as_rows(const Tensor& x);

}  // namespace lockstep::nn
