// Streams and events. Devices do not run by themselves: work in a stream is completed when the host
// waits for it, after two host queries, or when other ranks wait for it.
#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "null_gpu/capture.h"
#include "null_gpu/machine.h"
#include "null_gpu/order.h"
#include "null_gpu/report.h"

namespace null_gpu {
namespace {

constexpr int kQuestions = 2;  // queries until finished work is reported as done

struct Event {
  int device = 0;
  std::shared_ptr<Point> point;
  std::shared_ptr<Mark> mark;  // set during a capture
};

struct Streams {
  std::map<int, Stream*> own;  // default stream of each device
  std::set<Stream*> all, busy;
  std::set<Event*> events;
  std::condition_variable changed;
  int made = 0;
};
Streams& streams() {
  static Streams* const streams = new Streams;
  return *streams;
}

uint64_t hash_of(const void* memory, size_t bytes) {
  uint64_t hash = 14695981039346656037ULL;
  const auto* const text = static_cast<const unsigned char*>(memory);
  for (size_t i = 0; i < std::min<size_t>(bytes, 1 << 16); ++i) {
    hash = (hash ^ text[i]) * 1099511628211ULL;
  }
  return hash;
}

bool is_done(Operation& operation) {
  using Kind = Operation::Kind;
  switch (operation.kind) {
    case Kind::kRecord:
      operation.point->is_done = true;
      return true;
    case Kind::kWait:
      return operation.point->is_done;
    case Kind::kFill: {
      std::vector<char> content = remembered(operation.device, operation.bytes);
      content.resize(operation.bytes);
      std::copy(content.begin(), content.end(), static_cast<char*>(operation.memory));
      return true;
    }
    case Kind::kRead:
      if (hash_of(operation.memory, operation.bytes) != operation.hash) {
        broken("pinned memory was written before the device had copied it");
      }
      return true;
    case Kind::kExchange:
      return operation.exchange->is_done();
    case Kind::kCall:
      operation.call();
      return true;
  }
  return true;
}

Event* event_of(cudaEvent_t handle) {
  auto* const event = reinterpret_cast<Event*>(handle);
  return streams().events.count(event) != 0 ? event : nullptr;
}

}  // namespace

Stream& own_stream(int device) {
  Stream*& own = streams().own[device];
  if (own == nullptr) {
    own = new Stream{device, 0, {}, nullptr, streams().made++};
    streams().all.insert(own);
  }
  return *own;
}

Stream& stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) {
    return own_stream(current_device());
  }
  auto* const stream = reinterpret_cast<Stream*>(handle);
  if (streams().all.count(stream) == 0) {
    broken("the stream does not exist");
  }
  return *stream;
}

cudaStream_t handle_of(Stream& stream) {
  return reinterpret_cast<cudaStream_t>(&stream);
}

void add_work(Stream& stream, const char* kernel) {
  order_work(stream);
  if (stream.capture != nullptr) {
    capture_work(stream, kernel);
  } else if (kernel != nullptr) {
    count_kernel(kernel);
  }
}

void add(Stream& stream, Operation operation) {
  if (operation.kind == Operation::Kind::kRead) {
    operation.hash = hash_of(operation.memory, operation.bytes);
  }
  if (stream.capture != nullptr) {
    capture_operation(stream, std::move(operation));
    return;
  }
  stream.queue.push_back(std::move(operation));
  streams().busy.insert(&stream);
  streams().changed.notify_all();
}

void advance() {
  auto& busy = streams().busy;
  for (bool is_moved = true; is_moved;) {
    is_moved = false;
    for (auto at = busy.begin(); at != busy.end();) {
      Stream& stream = **at;
      while (!stream.queue.empty() && is_done(stream.queue.front())) {
        stream.queue.pop_front();
        is_moved = true;
      }
      at = stream.queue.empty() ? busy.erase(at) : std::next(at);
    }
  }
}

void wait_for(std::unique_lock<std::mutex>& lock, const std::function<bool()>& is_done) {
  for (int round = 0;; ++round) {
    advance();
    if (is_done()) {
      return;
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(round < 50 ? 50 : 500));
    lock.lock();
  }
}

bool is_idle(const Stream& stream) {
  return stream.queue.empty();
}

void go_on_alone() {
  static const bool is_going = [] {
    std::thread([] {
      std::unique_lock lock(mutex());
      for (;;) {
        advance();
        if (streams().busy.empty()) {
          streams().changed.wait(lock);
        }
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        lock.lock();
      }
    }).detach();
    return true;
  }();
  static_cast<void>(is_going);
}

}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* result, unsigned, int priority) {
  const std::unique_lock lock(mutex());
  auto* const stream = new Stream{current_device(), priority, {}, nullptr, streams().made++};
  streams().all.insert(stream);
  *result = handle_of(*stream);
  count("streams");
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  std::unique_lock lock(mutex());
  Stream& stream = stream_of(handle);
  wait_for(lock, [&] { return is_idle(stream); });
  streams().busy.erase(&stream);
  streams().all.erase(&stream);
  delete &stream;
  return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  const std::unique_lock lock(mutex());
  *priority = stream_of(handle).priority;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const std::unique_lock lock(mutex());
  Stream& stream = stream_of(handle);
  if (!may_wait("cudaStreamQuery", &stream)) {
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  if (is_idle(stream)) {
    host_was_told(stream.clock);
    return cudaSuccess;
  }
  advance();  // the next query finds it done
  return cudaErrorNotReady;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  std::unique_lock lock(mutex());
  Stream& stream = stream_of(handle);
  if (!may_wait("cudaStreamSynchronize", &stream)) {
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  count("waits");
  host_waited("cudaStreamSynchronize");
  const Clock clock = stream.clock;
  wait_for(lock, [&] { return is_idle(stream); });
  host_has_waited(clock);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  std::unique_lock lock(mutex());
  if (!may_wait("cudaDeviceSynchronize", nullptr)) {
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  count("waits");
  host_waited("cudaDeviceSynchronize");
  const int device = current_device();
  Clock clock;
  for (const Stream* const each : streams().all) {
    if (each->device == device) {
      merge(clock, each->clock);
    }
  }
  wait_for(lock, [&] {
    const auto& busy = streams().busy;
    return std::none_of(
        busy.begin(), busy.end(), [&](auto* each) { return each->device == device; });
  });
  host_has_waited(clock);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* result, unsigned) {
  const std::unique_lock lock(mutex());
  auto* const event = new Event{current_device(), nullptr, nullptr};
  streams().events.insert(event);
  *result = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* result) {
  return cudaEventCreateWithFlags(result, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const std::unique_lock lock(mutex());
  Event* const event = event_of(handle);
  if (event == nullptr) {
    return answer(cudaErrorInvalidResourceHandle);
  }
  streams().events.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned) {
  const std::unique_lock lock(mutex());
  Event* const event = event_of(handle);
  Stream& stream = stream_of(stream_handle);
  if (event == nullptr || event->device != stream.device) {
    refused("cudaEventRecord with an event of another device");
    return answer(cudaErrorInvalidResourceHandle);
  }
  event->point = std::make_shared<Point>();
  event->point->clock = stream.clock;
  event->mark = stream.capture == nullptr ? nullptr : mark_of(stream);
  add(stream, {Operation::Kind::kRecord, event->point});
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
  const std::unique_lock lock(mutex());
  Event* const event = event_of(handle);
  Stream& stream = stream_of(stream_handle);
  if (event == nullptr) {
    return answer(cudaErrorInvalidResourceHandle);
  }
  if (event->mark != nullptr) {
    if (!join_capture(stream, *event->mark)) {
      return answer(cudaErrorStreamCaptureIsolation);
    }
  } else if (stream.capture != nullptr) {
    if (event->point == nullptr) {
      return cudaSuccess;
    }
    refused("a captured stream waits for an event outside of the capture");
    spoil(*stream.capture);
    return answer(cudaErrorStreamCaptureIsolation);
  }
  if (event->point != nullptr && event->mark == nullptr) {
    merge(stream.clock, event->point->clock);
  }
  if (event->point != nullptr && (event->mark != nullptr || !event->point->is_done)) {
    add(stream, {Operation::Kind::kWait, event->point});
  }
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const std::unique_lock lock(mutex());
  Event* const event = event_of(handle);
  if (event == nullptr) {
    return answer(cudaErrorInvalidResourceHandle);
  }
  if (event->mark != nullptr) {
    refused("cudaEventQuery with a captured event");
    return answer(cudaErrorCapturedEvent);
  }
  if (event->point == nullptr) {
    return cudaSuccess;
  }
  if (++event->point->questions < kQuestions) {
    return cudaErrorNotReady;
  }
  advance();
  if (event->point->is_done) {
    host_was_told(event->point->clock);
  }
  return event->point->is_done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  std::unique_lock lock(mutex());
  Event* const event = event_of(handle);
  if (event == nullptr) {
    return answer(cudaErrorInvalidResourceHandle);
  }
  if (event->mark != nullptr || !may_wait("cudaEventSynchronize", nullptr)) {
    refused("cudaEventSynchronize during a capture");
    return answer(cudaErrorCapturedEvent);
  }
  if (const std::shared_ptr<Point> point = event->point; point != nullptr) {
    count("waits");
    host_waited("cudaEventSynchronize");
    wait_for(lock, [&] { return point->is_done; });
    host_has_waited(point->clock);
    point->questions = kQuestions;
  }
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1.0f;
  return cudaSuccess;
}

cudaError_t cudaStreamAddCallback(
    cudaStream_t handle, cudaStreamCallback_t callback, void* data, unsigned) {
  const std::unique_lock lock(mutex());
  Operation operation{Operation::Kind::kCall};
  operation.call = [=] { callback(handle, cudaSuccess, data); };
  add(stream_of(handle), std::move(operation));
  return cudaSuccess;
}

}  // extern "C"
