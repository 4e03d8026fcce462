// Host memory that copies of a GPU reach by themselves.
#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::cuda {

/// [bytes] uint8, of pages of 2 MiB if the system has them, pinned for all GPUs. Throws c10::Error:
/// there is no more.
at::Tensor pinned(int64_t bytes);

}  // namespace lockstep::cuda
