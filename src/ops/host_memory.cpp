// Caching allocator for CPU tensors, and zero-filled buffers without page faults.
#include "ops/host_memory.h"

#include <algorithm>
#include <cstdint>
#include <list>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include <ATen/EmptyTensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <sys/resource.h>
#include <unistd.h>

#include "ops/cpu/host_arena.h"

namespace lockstep::ops {
namespace {

constexpr size_t kLeast = size_t{64} << 10;
constexpr int64_t kAlwaysKept = int64_t{64} << 20;
constexpr int64_t kWindow = int64_t{1} << 14;  // number of allocations; a training step has several
                                               // hundred
constexpr size_t kColours = 32, kCacheLine = 64;
constexpr size_t kPage = HostArena::kPage;
static_assert(kColours * kCacheLine <= kPage);

struct Block {
  HostArena* arena = nullptr;
  std::byte* begin = nullptr;
  size_t size = 0;  // number of usable bytes

  /// Reserved bytes, including the offset of data().
  size_t reserved() const { return size + kPage; }
  /// Returns the start of the block's data. The offset within a page depends only on the address.
  /// It spreads blocks over the cache sets; otherwise all blocks would map to the same sets.
  std::byte* data() const {
    constexpr uint64_t kSpread = 0x9E3779B97F4A7C15;
    const uint64_t page = reinterpret_cast<uintptr_t>(begin) / kPage;
    return begin + (page * kSpread >> 32) % kColours * kCacheLine;
  }
};

/// Returns the number of bytes of address space to reserve: at most the machine's memory and, if
/// the address space is limited, only a fraction of it, because other allocations also need
/// addresses.
size_t addresses_at_once() {
  const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  const size_t memory = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  rlimit limit{};
  const bool is_limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return is_limited ? std::min<size_t>(memory, limit.rlim_cur / 8) : memory;
}

thread_local ThreadMemory of_thread;
thread_local bool last_is_new = false;  // no byte of this thread's last block was in use before

void count(int64_t bytes) {
  of_thread.now += bytes;
  of_thread.most = std::max(of_thread.most, of_thread.now);
}

/// Precedes the data of a block smaller than kLeast and records its size, since the sizes of
/// another allocator's blocks cannot be queried (libtorch uses mimalloc on aarch64). The header has
/// the alignment that libtorch's kernels require.
struct alignas(64) SmallHeader {
  size_t bytes = 0;
};

class PersistentMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLeast) {
      last_is_new = false;
      void* data = bytes == 0 ? nullptr : allocate_small(bytes);
      return {data, data, &PersistentMemory::free_small, c10::Device(c10::kCPU)};
    }
    TORCH_CHECK(bytes <= size_t{PTRDIFF_MAX}, "no tensor has ", bytes, " bytes");
    const size_t size = (bytes + kPage - 1) / kPage * kPage;
    void* data = take(size);
    count(static_cast<int64_t>(size));
    return {data, data, &PersistentMemory::free_block, c10::Device(c10::kCPU)};
  }

  /// Returns a deleter that frees blocks of any size.
  c10::DeleterFnPtr raw_deleter() const override { return &PersistentMemory::free_any; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  HostMemory state() {
    const std::lock_guard lock(mutex_);
    return {used_, resident() - reserved_, std::max(peak_, peak_before_), mapped_};
  }

  static PersistentMemory& instance() {
    static auto* memory =
        new PersistentMemory;  // never destroyed, because tensors may outlive all static objects
    return *memory;
  }

 private:
  static void free_block(void* data) { count(-instance().give(data)); }

  void* allocate_small(size_t bytes) {
    auto* header = new (small_->raw_allocate(sizeof(SmallHeader) + bytes)) SmallHeader{bytes};
    count(static_cast<int64_t>(bytes));
    return header + 1;
  }

  static void free_small(void* data) {
    if (data == nullptr) {
      return;
    }
    SmallHeader* header = static_cast<SmallHeader*>(data) - 1;
    count(-static_cast<int64_t>(header->bytes));
    instance().small_->raw_deallocate(header);
  }

  static void free_any(void* data) {
    if (const int64_t bytes = instance().give(data); bytes > 0) {
      count(-bytes);
    } else {
      free_small(data);
    }
  }

  void* take(size_t size) {
    const std::lock_guard lock(mutex_);
    notice_peak(used_ + static_cast<int64_t>(size));
    const int64_t before = resident();
    const Block block = find(size);
    void* const data = block.data();
    in_use_.emplace(data, block);
    used_ += static_cast<int64_t>(size);
    reserved_ += static_cast<int64_t>(block.reserved());
    last_is_new = resident() - before == static_cast<int64_t>(block.reserved());
    if (resident() > before) {
      ++mapped_;
      drop_down_to(limit());
    }
    return data;
  }

  Block find(size_t size) {
    Block block;
    block.size = size;
    for (HostArena& arena : arenas_) {
      block.arena = &arena;
      block.begin = arena.take(block.reserved());
      if (block.begin != nullptr) {
        return block;
      }
    }
    block.arena = &arenas_.emplace_back(std::max(addresses_at_once(), block.reserved()));
    block.begin = block.arena->take(block.reserved());
    return block;
  }

  /// Frees a block and returns its size in bytes; 0 if `data` does not belong to this allocator.
  int64_t give(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = in_use_.find(data);
    if (found == in_use_.end()) {
      return 0;
    }
    const Block block = found->second;
    in_use_.erase(found);
    used_ -= static_cast<int64_t>(block.size);
    reserved_ -= static_cast<int64_t>(block.reserved());
    block.arena->give(block.begin, block.reserved());
    drop_down_to(limit());
    return static_cast<int64_t>(block.size);
  }

  int64_t resident() const {
    size_t bytes = 0;
    for (const HostArena& arena : arenas_) {
      bytes += arena.resident();
    }
    return static_cast<int64_t>(bytes);
  }

  /// Returns the limit for the total of used and cached bytes. Gaps between blocks are included.
  int64_t limit() const {
    const int64_t peak = std::max(peak_, peak_before_);
    return peak + peak / 4 + kAlwaysKept;
  }

  /// Updates the peak. A peak expires after one to two windows.
  void notice_peak(int64_t used) {
    if (++taken_ % kWindow == 0) {
      peak_before_ = std::exchange(peak_, 0);
    }
    peak_ = std::max(peak_, used);
  }

  void drop_down_to(int64_t bytes) {
    for (auto arena = arenas_.rbegin(); arena != arenas_.rend(); ++arena) {
      const int64_t others = resident() - static_cast<int64_t>(arena->resident());
      arena->release_down_to(static_cast<size_t>(std::max<int64_t>(bytes - others, 0)));
    }
  }

  c10::Allocator* small_ = c10::GetDefaultCPUAllocator();
  std::mutex mutex_;
  std::unordered_map<void*, Block> in_use_;  // keyed by data address
  std::list<HostArena> arenas_;              // more than one if the address space is limited
  int64_t used_ = 0, reserved_ = 0;  // bytes of the blocks in use, without and with the offsets of
                                     // their data
  int64_t peak_ = 0, peak_before_ = 0;  // peaks of used_ in this window and in the previous one
  int64_t taken_ = 0,
          mapped_ = 0;  // number of allocated blocks, and of those that required new memory
};

}  // namespace

void keep_host_memory() {
  c10::SetCPUAllocator(&PersistentMemory::instance());
}

at::Tensor new_zeros(int64_t count, const at::TensorOptions& options) {
  if (!options.device().is_cpu() || options.pinned_memory() ||
      c10::GetCPUAllocator() != &PersistentMemory::instance()) {
    return at::zeros({count}, options);
  }
  at::Tensor zeros =
      at::detail::empty_cpu({count}, options);  // not filled, because new pages are zero
  return last_is_new ? zeros : zeros.zero_();
}

ThreadMemory take_thread_memory() {
  const ThreadMemory taken = of_thread;
  of_thread.most = of_thread.now;
  return taken;
}

HostMemory host_memory() {
  return PersistentMemory::instance().state();
}

}  // namespace lockstep::ops
