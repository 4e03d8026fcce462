// A step of the iteration that makes a matrix orthogonal.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::ops {

/// a x + (b g + c g g) x with g = x x^T: [m, n] with m <= n, contiguous, of x's type. With a, b and
/// c of Newton and Schulz's iteration the singular values of x go towards 1 (Bernstein and Newhouse
/// 2024, arXiv:2409.20325, section A; the coefficients are Jordan's, of Muon). Where AMX multiplies
/// bfloat16, the two symmetric products are made on and above the diagonal alone, and each of the
/// three results is rounded once, as by addmm. No autograd.
at::Tensor newton_schulz_step(const at::Tensor& x, double a, double b, double c);

}  // namespace lockstep::ops
