// Step of the Newton-Schulz iteration, which orthogonalizes a matrix.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// Returns a x + (b g + c g g) x with g = x x^T, for contiguous x [m, n] with m <= n, in x's type.
/// With suitable a, b and c, the singular values of x converge to 1 (Bernstein and Newhouse 2024,
/// arXiv:2409.20325, section A; Muon uses Jordan's coefficients). For bfloat16 with AMX, the two
/// symmetric products are computed only on and above the diagonal, and each of the three results is
/// rounded once, as in addmm. Does not support autograd.
at::Tensor newton_schulz_step(const at::Tensor& x, double a, double b, double c);

}  // namespace lockstep::ops
