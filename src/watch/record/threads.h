// Runs loops over a record in parallel.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/cores.h"

namespace lockstep::watch {

/// Returns the number of threads for `work` units if each thread should have at least `least`
/// units. It does not exceed the number of CPUs or 8.
inline size_t threads_for(size_t work, size_t least) {
  return std::clamp<size_t>(work / least, 1, static_cast<size_t>(std::clamp(usable_cpus(), 1, 8)));
}

/// Calls body(0) to body(count - 1), each once, on `threads` threads including the calling one.
template <class Body>
void in_threads(size_t threads, size_t count, const Body& body) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      body(i);
    }
  };
  std::vector<std::jthread> others;
  for (size_t i = 1; i < std::min(threads, count); ++i) {
    others.emplace_back(work);
  }
  work();
}

}  // namespace lockstep::watch
