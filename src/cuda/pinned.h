// Pinned host memory for asynchronous copies.
#pragma once

#include <cstdint>
#include <memory>

namespace lockstep::cuda {

/// Pins pages for all GPUs for the lifetime of the returned object. The pages must stay mapped for
/// that time. Throws c10::Error if the system cannot pin more memory.
std::shared_ptr<void> pin(void* memory, int64_t bytes);

}  // namespace lockstep::cuda
