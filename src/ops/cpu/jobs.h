// Parallel loop over jobs of equal size. Internal to ops.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace lockstep::ops {

/// Alignment of scratch memory: a cache line.
inline constexpr int64_t kLine = 64;

inline uint8_t* aligned_to_line(uint8_t* memory) {
  return memory + (kLine - reinterpret_cast<uintptr_t>(memory) % kLine) % kLine;
}

/// Calls `function(first, last, scratch)` in parallel for ranges that cover all jobs. Each thread
/// has its own `scratch_bytes`.
template <class Function>
void over_jobs(int64_t jobs, int64_t scratch_bytes, const Function& function) {
  const int64_t parts = std::max<int64_t>(1, std::min<int64_t>(jobs, at::get_num_threads()));
  const int64_t each = (scratch_bytes + kLine - 1) / kLine * kLine;
  const at::Tensor memory = at::empty({parts * each + kLine}, at::kByte);
  auto* begin = aligned_to_line(memory.data_ptr<uint8_t>());
  at::parallel_for(0, parts, 1, [&](int64_t from, int64_t until) {
    for (int64_t part = from; part < until; ++part) {
      function(jobs * part / parts, jobs * (part + 1) / parts, begin + part * each);
    }
  });
}

}  // namespace lockstep::ops
