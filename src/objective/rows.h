// Helpers for objectives over rows. Internal to objective.
#pragma once

#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "base/format.h"
#include "nn/targets.h"

namespace lockstep::objective {

using at::Tensor;

/// Returns the tensor. Throws Error (kInternal) if it is undefined.
inline const Tensor& needed(const Tensor& tensor, const char* what) {
  if (!tensor.defined()) {
    throw Error(ErrorKind::kInternal, fmt::format("this objective requires the rows' {}", what));
  }
  return tensor;
}

/// Returns 1 for rows of the kind and 0 for others, float64 [B].
inline Tensor of_kind(const nn::Targets& targets, nn::RowKind kind) {
  return needed(targets.kinds, "kinds").eq(static_cast<int64_t>(kind)).to(at::kDouble);
}

}  // namespace lockstep::objective
