// The simulated machine: devices, their memory, streams and events. One mutex protects all of it;
// callers of these functions must hold it unless stated otherwise.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace null_gpu {

std::mutex& mutex();

// ---- Devices

/// Devices visible to the process (NULL_GPU_DEVICES, CUDA_VISIBLE_DEVICES), as numbers on the
/// machine.
const std::vector<int>& devices();
int64_t device_memory();
int& current_device();  // per thread
/// Sets the result of cudaGetLastError() and returns it.
cudaError_t answer(cudaError_t error);

// ---- Memory

enum class Kind { kDevice, kReserved, kPinned };
struct Range {
  uintptr_t begin = 0;
  size_t bytes = 0;
  Kind kind = Kind::kDevice;
  int device = 0;
};
/// Returns the range that contains the address; null for pageable host memory.
const Range* range_of(const void* address);
/// Reserves addresses that fault on host access. Returns null if the device's memory is exhausted.
void* allocate(int device, size_t bytes);
bool release(void* memory);
void add_pinned(void* memory, size_t bytes);
bool remove_pinned(void* memory);
int64_t used_memory(int device);

/// Devices compute nothing, but data that the host wrote follow copies and sends if their size is
/// in this range. Smaller values (such as sums that kernels add to) and larger ones are not
/// tracked. Headers of messages have such sizes.
constexpr size_t kLeastRemembered = 1024, kMostRemembered = 8192;
void remember(const void* memory, size_t bytes, const void* content);
void forget(const void* memory, size_t bytes);
/// Returns the data at an address; empty if they were not written by the host.
std::vector<char> remembered(const void* memory, size_t bytes);

// ---- Streams

/// Vector clock: for each stream number, the count of its preceding work items.
using Clock = std::vector<uint64_t>;

/// Completion state of device work. Two host queries find it not done; a wait completes it.
struct Point {
  bool is_done = false;
  int questions = 0;
  Clock clock{};
};

/// Stream work in which other ranks take part.
struct Exchange {
  virtual ~Exchange() = default;
  /// Called when the device has reached it: notifies the other ranks and returns whether all have
  /// reached it.
  virtual bool is_done() = 0;
  virtual std::shared_ptr<Exchange> again() = 0;  // for a graph replay
};

struct Stream;
struct Operation {
  enum class Kind { kRecord, kWait, kFill, kRead, kExchange, kCall } kind = Kind::kRecord;
  std::shared_ptr<Point> point{};
  std::shared_ptr<Exchange> exchange{};
  void* memory = nullptr;        // host memory: destination of a copy, or source of one
  const void* device = nullptr;  // device source of a copy to the host
  size_t bytes = 0;
  uint64_t hash = 0;
  std::function<void()> call{};
};

struct Capture;
struct Stream {
  int device = 0;
  int priority = 0;
  std::deque<Operation> queue;
  Capture* capture = nullptr;
  int number = 0;  // unique in the process
  Clock clock{};   // see order.h
};
/// The default stream of a device.
Stream& own_stream(int device);
/// Returns the stream of a handle; a null handle is the default stream.
Stream& stream_of(cudaStream_t handle);
cudaStream_t handle_of(Stream& stream);
/// Adds work that ends by itself, such as a kernel or a copy. It is recorded only during a capture.
void add_work(Stream& stream, const char* kernel);
void add(Stream& stream, Operation operation);
/// Executes all work that does not have to wait for other ranks.
void advance();
/// Blocks until `is_done`; releases the lock while it waits.
void wait_for(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_done);
bool is_idle(const Stream& stream);
/// From now on, work that other ranks wait for progresses without host calls.
void go_on_alone();

/// Returns true if a call that waits for the device is allowed now. Otherwise reports it and
/// invalidates the affected captures.
bool may_wait(const char* call, const Stream* stream);

}  // namespace null_gpu
