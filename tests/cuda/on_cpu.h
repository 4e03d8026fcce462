// CUDA kernels on a CPU: a kernel's file is included after this header, and launch() executes it.
// Each thread of a block is a fiber. Fibers switch at barriers and shuffles, in a random order each
// time, so that a dependence on the order shows. A thread that does not reach a barrier is an
// error. Blocks run sequentially, with NaN in their shared memory at the start.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include <cuda_runtime.h>
#include <ucontext.h>

namespace lockstep::cuda {

/// The threads of one block.
class Block {
 public:
  static constexpr int kWarp = 32;
  static constexpr size_t kStack = size_t{1} << 16;

  Block(unsigned index, unsigned blocks, int threads, std::function<void()> body)
      : body_(std::move(body)),
        fibers_(static_cast<size_t>(threads)),
        slots_(fibers_.size()),
        warps_((fibers_.size() + kWarp - 1) / kWarp),
        block_index(index),
        grid(blocks) {
    for (Fiber& fiber : fibers_) {
      fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
      ::getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = kStack;
      fiber.context.uc_link = &scheduler_;
      ::makecontext(&fiber.context, &Block::enter, 0);
    }
    all_.size = fibers_.size();
    for (size_t warp = 0; warp < warps_.size(); ++warp) {
      warps_[warp].size = std::min<size_t>(kWarp, fibers_.size() - warp * kWarp);
    }
  }

  void run() {
    current() = this;
    static std::mt19937 random(7);
    std::vector<size_t> order(fibers_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    size_t left = fibers_.size();
    while (left > 0) {
      std::shuffle(order.begin(), order.end(), random);
      bool went_on = false;
      for (const size_t i : order) {
        Fiber& fiber = fibers_[i];
        const bool waits = fiber.barrier != nullptr && fiber.barrier->passed == fiber.seen;
        if (fiber.ended || waits) {
          continue;
        }
        thread_ = i;
        ::swapcontext(&scheduler_, &fiber.context);
        went_on = true;
        left -= fiber.ended ? 1 : 0;
      }
      if (!went_on) {
        throw std::runtime_error(
            "threads of a block wait at a barrier to which others do not come");
      }
    }
    current() = nullptr;
  }

  void synchronize() { pass(all_); }
  /// The first thread that calls it fills the memory with garbage.
  void spoil(void* memory, size_t bytes) {
    if (spoiled_.insert(memory).second) {
      std::memset(memory, 0xff, bytes);
    }
  }
  template <class T>
  T shuffle_xor(T value, int step) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    Barrier& warp = warps_[thread_ / kWarp];
    std::memcpy(&slots_[thread_], &value, sizeof(T));
    pass(warp);
    std::memcpy(&value, &slots_[thread_ ^ static_cast<size_t>(step)], sizeof(T));
    pass(warp);  // separates writes from reads
    return value;
  }
  unsigned thread() const { return static_cast<unsigned>(thread_); }
  unsigned threads() const { return static_cast<unsigned>(fibers_.size()); }

  static Block*& current() {
    static Block* block = nullptr;
    return block;
  }

 private:
  struct Barrier {
    size_t size = 0, arrived = 0, passed = 0;
  };
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    Barrier* barrier = nullptr;
    size_t seen = 0;
    bool ended = false;
  };

  static void enter() {
    Block& block = *current();
    const size_t self = block.thread_;
    block.body_();
    block.fibers_[self].ended = true;
  }
  void pass(Barrier& barrier) {
    const size_t self = thread_;
    Fiber& fiber = fibers_[self];
    fiber.barrier = &barrier;
    fiber.seen = barrier.passed;
    if (++barrier.arrived == barrier.size) {
      barrier.arrived = 0;
      ++barrier.passed;
    }
    ::swapcontext(&fiber.context, &scheduler_);
    fiber.barrier = nullptr;
  }

  std::function<void()> body_;
  std::vector<Fiber> fibers_;
  std::vector<uint64_t> slots_;
  std::vector<Barrier> warps_;
  std::set<const void*> spoiled_;
  Barrier all_;
  ucontext_t scheduler_;
  size_t thread_ = 0;

 public:
  const unsigned block_index, grid;
};

template <class... Parameters, class... Arguments>
void launch(
    void (*kernel)(Parameters...),
    int64_t blocks,
    int threads,
    cudaStream_t,
    Arguments... arguments) {
  for (int64_t block = 0; block < blocks; ++block) {
    Block(static_cast<unsigned>(block), static_cast<unsigned>(blocks), threads, [&] {
      kernel(arguments...);
    }).run();
  }
}

template <class T>
void begin_shared(T& memory) {
  Block::current()->spoil(&memory, sizeof memory);
}

inline unsigned atomicMax(unsigned* at, unsigned value) {  // fibers are not concurrent
  const unsigned before = *at;
  *at = std::max(before, value);
  return before;
}

struct Coordinate {
  unsigned x;
};

}  // namespace lockstep::cuda

// Declarations that are built into nvcc.
#undef __shared__
#define __shared__ static  // only one block runs at a time
#undef __launch_bounds__
#define __launch_bounds__(threads)
#define threadIdx (::lockstep::cuda::Coordinate{::lockstep::cuda::Block::current()->thread()})
#define blockDim (::lockstep::cuda::Coordinate{::lockstep::cuda::Block::current()->threads()})
#define blockIdx (::lockstep::cuda::Coordinate{::lockstep::cuda::Block::current()->block_index})
#define gridDim (::lockstep::cuda::Coordinate{::lockstep::cuda::Block::current()->grid})
#define __syncthreads() ::lockstep::cuda::Block::current()->synchronize()
#define __shfl_xor_sync(mask, value, step) \
  ::lockstep::cuda::Block::current()->shuffle_xor(value, step)
