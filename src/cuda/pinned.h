// Pinned host memory for asynchronous copies.
#pragma once

#include <cstdint>
#include <memory>

namespace lockstep::cuda {

/// Pins pages for all GPUs for the lifetime of the result; they must stay mapped until then. Throws
/// c10::Error if the system cannot pin more memory.
std::shared_ptr<void> pin(void* memory, int64_t bytes);

}  // namespace lockstep::cuda
