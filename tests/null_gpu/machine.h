// The pretended machine: devices, their memory, streams and events. Everything of it is behind one
// mutex, which who calls these functions holds unless it is said otherwise.
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

/// Devices that the process sees (NULL_GPU_DEVICES, CUDA_VISIBLE_DEVICES); each one's number on the
/// machine.
const std::vector<int>& devices();
int64_t device_memory();
int& current_device();  // of this thread
/// Sets what cudaGetLastError() tells.
cudaError_t answer(cudaError_t error);

// ---- Memory

enum class Kind { kDevice, kReserved, kPinned };
struct Range {
  uintptr_t begin = 0;
  size_t bytes = 0;
  Kind kind = Kind::kDevice;
  int device = 0;
};
/// The range that holds the address, or null: pageable memory of the host.
const Range* range_of(const void* address);
/// Address space that faults when the host touches it. Null: the device has no more.
void* allocate(int device, size_t bytes);
bool release(void* memory);
void add_pinned(void* memory, size_t bytes);
bool remove_pinned(void* memory);
int64_t used_memory(int device);

/// Devices compute nothing, but what the host wrote goes where it is copied or sent, unless it is
/// small (a number that kernels add to) or large: messages that say what comes are of this kind.
constexpr size_t kLeastRemembered = 1024, kMostRemembered = 8192;
void remember(const void* memory, size_t bytes, const void* content);
void forget(const void* memory, size_t bytes);
/// Empty: not the host's.
std::vector<char> remembered(const void* memory, size_t bytes);

// ---- Streams

/// What lies before: for each stream's number, how many of its works.
using Clock = std::vector<uint64_t>;

/// What a device has done, or not yet. Two hosts' questions find it not done, a wait finds it done.
struct Point {
  bool is_done = false;
  int questions = 0;
  Clock clock{};
};

/// A part of a stream's work that other ranks take part in.
struct Exchange {
  virtual ~Exchange() = default;
  /// The device has come to it: says so to the others, and whether all of them have.
  virtual bool is_done() = 0;
  virtual std::shared_ptr<Exchange> again() = 0;  // in a graph's replay
};

struct Stream;
struct Operation {
  enum class Kind { kRecord, kWait, kFill, kRead, kExchange, kCall } kind = Kind::kRecord;
  std::shared_ptr<Point> point{};
  std::shared_ptr<Exchange> exchange{};
  void* memory = nullptr;        // of the host: the device's comes here, or it was read here
  const void* device = nullptr;  // what comes here
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
  int number = 0;  // of the process
  Clock clock{};   // see order.h
};
/// The device's own.
Stream& own_stream(int device);
/// The stream of a handle, which may be null: the device's own.
Stream& stream_of(cudaStream_t handle);
cudaStream_t handle_of(Stream& stream);
/// A kernel, a copy, or anything else that ends by itself: nothing is kept of it but a capture's.
void add_work(Stream& stream, const char* kernel);
void add(Stream& stream, Operation operation);
/// Does what can be done without a wait for others.
void advance();
/// Until the point is done, or all of the stream; lets go of the lock in between.
void wait_for(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_done);
bool is_idle(const Stream& stream);
/// Work that other ranks wait for goes on without the host's asking from now on.
void go_on_alone();

/// Whether something that waits for the device may be called now; if not, says so and spoils the
/// captures that it meets.
bool may_wait(const char* call, const Stream* stream);

}  // namespace null_gpu
