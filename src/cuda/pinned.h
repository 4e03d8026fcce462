// Host memory that copies of a GPU reach by themselves.
#pragma once

#include <cstdint>
#include <memory>

namespace lockstep::cuda {

/// Pins pages for all GPUs until the result is gone, before which they must not be unmapped. Throws
/// c10::Error: the system gives no more.
std::shared_ptr<void> pin(void* memory, int64_t bytes);

}  // namespace lockstep::cuda
