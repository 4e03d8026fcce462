#include "ops/host_memory.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <sys/mman.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::ops {
namespace {

constexpr size_t kLeast = size_t{256} << 10;
constexpr size_t kSmallPage = size_t{4} << 10, kHugePage = size_t{2} << 20;
constexpr int64_t kAlwaysKept = int64_t{64} << 20;
constexpr int64_t kWindow = int64_t{1} << 14;  // blocks taken; a step takes some hundreds
constexpr size_t kColours = 32, kLine = 64;

struct Block {
  void* mapping = nullptr;
  size_t mapped = 0;  // bytes
  size_t size = 0;    // that it serves
  void* data = nullptr;
};

thread_local ThreadMemory of_thread;

void count(int64_t bytes) {
  of_thread.now += bytes;
  of_thread.most = std::max(of_thread.most, of_thread.now);
}

/// Of a block that the system's allocator gave.
int64_t bytes_of_small(void* data) {
  return static_cast<int64_t>(malloc_usable_size(data));
}

class KeptMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes < kLeast) {
      void* small = small_->raw_allocate(bytes);
      count(bytes_of_small(small));
      return {small, small, &KeptMemory::free_small, c10::Device(c10::kCPU)};
    }
    const size_t size = (bytes + kSmallPage - 1) / kSmallPage * kSmallPage;
    void* data = take(size);
    count(static_cast<int64_t>(size));
    return {data, data, &KeptMemory::free_block, c10::Device(c10::kCPU)};
  }

  /// Frees what any allocate() gave.
  c10::DeleterFnPtr raw_deleter() const override { return &KeptMemory::free_any; }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  HostMemory state() {
    const std::lock_guard lock(mutex_);
    return {used_, kept_, std::max(peak_, peak_before_), mapped_};
  }

  static KeptMemory& instance() {
    static auto* memory = new KeptMemory;  // tensors may outlive everything else
    return *memory;
  }

 private:
  static void free_block(void* data) { count(-instance().give(data)); }

  static void free_small(void* data) {
    count(-bytes_of_small(data));
    instance().small_->raw_deallocate(data);
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
    Block block;
    const auto found = by_size_.find(size);
    notice_peak(used_ + static_cast<int64_t>(size));
    if (found == by_size_.end()) {
      drop_down_to(limit() - static_cast<int64_t>(size));
      block = map(size);
    } else {
      block = *found->second;
      free_.erase(found->second);
      by_size_.erase(found);
      kept_ -= static_cast<int64_t>(size);
    }
    used_ += static_cast<int64_t>(size);
    in_use_.emplace(block.data, block);
    return block.data;
  }

  /// The bytes of the block; 0 where `data` is not one of these.
  int64_t give(void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = in_use_.find(data);
    if (found == in_use_.end()) {
      return 0;
    }
    const Block block = found->second;
    in_use_.erase(found);
    used_ -= static_cast<int64_t>(block.size);
    kept_ += static_cast<int64_t>(block.size);
    free_.push_front(block);
    by_size_.emplace(block.size, free_.begin());
    drop_down_to(limit());
    return static_cast<int64_t>(block.size);
  }

  /// Of what is in use and kept together. A step whose sizes come in another order than before, or
  /// whose largest blocks are not needed at once, finds most of them within a quarter more.
  int64_t limit() const {
    const int64_t peak = std::max(peak_, peak_before_);
    return peak + peak / 4 + kAlwaysKept;
  }

  /// A peak is forgotten after one to two windows.
  void notice_peak(int64_t used) {
    if (++taken_ % kWindow == 0) {
      peak_before_ = std::exchange(peak_, 0);
    }
    peak_ = std::max(peak_, used);
  }

  void drop_down_to(int64_t bytes) {
    while (used_ + kept_ > bytes && !free_.empty()) {
      drop_oldest();
    }
  }

  void drop_oldest() {
    const auto oldest = std::prev(free_.end());
    const auto [begin, end] = by_size_.equal_range(oldest->size);
    for (auto entry = begin; entry != end; ++entry) {
      if (entry->second == oldest) {
        by_size_.erase(entry);
        break;
      }
    }
    kept_ -= static_cast<int64_t>(oldest->size);
    munmap(oldest->mapping, oldest->mapped);
    free_.erase(oldest);
  }

  Block map(size_t size) {
    ++mapped_;
    Block block;
    block.size = size;
    const size_t page = size >= kHugePage ? kHugePage : kSmallPage;
    // Blocks begin at different lines, or all of them would meet in the same sets of the caches.
    const size_t colour = next_colour_++ % kColours * kLine;
    block.mapped = size + page;
    block.mapping =
        mmap(nullptr, block.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block.mapping == MAP_FAILED) {
      throw Error(
          ErrorKind::kOutOfMemory,
          fmt::format("no memory for a tensor of {} bytes", size),
          "lower per_device_train_batch_size or data.sequence_length");
    }
    const auto address = reinterpret_cast<uintptr_t>(block.mapping);
    const uintptr_t aligned = (address + page - 1) / page * page;
    if (page == kHugePage) {
      // A wish: small pages work as well.
      madvise(reinterpret_cast<void*>(aligned), size / kHugePage * kHugePage, MADV_HUGEPAGE);
    }
    block.data = reinterpret_cast<void*>(aligned + colour);
    return block;
  }

  c10::Allocator* small_ = c10::GetDefaultCPUAllocator();
  std::mutex mutex_;
  std::unordered_map<void*, Block> in_use_;  // by data
  std::list<Block> free_;                    // the newest first
  std::unordered_multimap<size_t, std::list<Block>::iterator> by_size_;
  int64_t used_ = 0, kept_ = 0;
  int64_t peak_ = 0, peak_before_ = 0;  // of used_, in this window and the one before
  int64_t taken_ = 0, mapped_ = 0;      // blocks: given, and new ones
  size_t next_colour_ = 0;
};

}  // namespace

void keep_host_memory() {
  c10::SetCPUAllocator(&KeptMemory::instance());
}

ThreadMemory take_thread_memory() {
  const ThreadMemory taken = of_thread;
  of_thread.most = of_thread.now;
  return taken;
}

HostMemory host_memory() {
  return KeptMemory::instance().state();
}

}  // namespace lockstep::ops
