// Stream captures. Calls that are forbidden during a capture are refused as in CUDA and invalidate
// the capture.
#include "null_gpu/capture.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "null_gpu/order.h"
#include "null_gpu/report.h"

namespace null_gpu {

struct Node {
  const char* kernel = nullptr;
  std::optional<Operation> operation;
};

struct Capture {
  unsigned long long number = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  Stream* origin = nullptr;
  bool is_spoilt = false;
  std::map<Stream*, std::vector<Node>> nodes;
  std::map<Stream*, Progress> progress;
};

namespace {

struct Graph {
  std::vector<std::vector<Node>> branches;  // one per stream of the capture
  size_t size = 0;
};
struct Executable {
  std::vector<std::vector<Node>> branches;
  std::vector<Stream*> streams;
};

std::map<unsigned long long, Capture*>& captures() {
  static auto* const captures = new std::map<unsigned long long, Capture*>;
  return *captures;
}

cudaStreamCaptureMode& thread_mode() {
  thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

/// Returns the number of nodes up to the last work node; CUDA does not count event records and
/// waits as work.
size_t work_until(const std::vector<Node>& nodes) {
  const auto is_work = [](const Node& node) {
    using Kind = Operation::Kind;
    return !node.operation ||
           (node.operation->kind != Kind::kRecord && node.operation->kind != Kind::kWait);
  };
  const auto last = std::find_if(nodes.rbegin(), nodes.rend(), is_work);
  return static_cast<size_t>(nodes.rend() - last);
}

void add_node(Stream& stream, Node node) {
  Capture& capture = *stream.capture;
  capture.nodes[&stream].push_back(std::move(node));
  capture.progress[&stream][&stream] = capture.nodes[&stream].size();
}

}  // namespace

void capture_work(Stream& stream, const char* kernel) {
  add_node(stream, {kernel, std::nullopt});
}

void capture_operation(Stream& stream, Operation operation) {
  add_node(stream, {nullptr, std::move(operation)});
}

std::shared_ptr<Mark> mark_of(Stream& stream) {
  // The event record itself is the next node.
  Progress before = stream.capture->progress[&stream];
  before[&stream] = stream.capture->nodes[&stream].size() + 1;
  return std::make_shared<Mark>(Mark{stream.capture, stream.capture->number, std::move(before)});
}

bool join_capture(Stream& stream, const Mark& mark) {
  if (captures().count(mark.number) == 0) {
    refused("a stream waits for an event of a capture that has ended");
    return false;
  }
  if (stream.capture != nullptr && stream.capture != mark.capture) {
    refused("a stream joins two captures");
    return false;
  }
  if (stream.capture == nullptr && !is_idle(stream)) {
    advance();
  }
  stream.capture = mark.capture;
  mark.capture->nodes[&stream];
  for (const auto& [other, nodes] : mark.before) {
    size_t& seen = mark.capture->progress[&stream][other];
    seen = std::max(seen, nodes);
  }
  return true;
}

void spoil(Capture& capture) {
  capture.is_spoilt = true;
}

bool may_wait(const char* call, const Stream* stream) {
  if (stream != nullptr) {
    if (stream->capture == nullptr) {
      return true;
    }
    refused(std::string(call) + " on a captured stream");
    spoil(*stream->capture);
    return false;
  }
  if (thread_mode() == cudaStreamCaptureModeRelaxed) {
    return true;
  }
  for (const auto& [number, capture] : captures()) {
    const bool is_own = capture->thread == std::this_thread::get_id();
    if (capture->mode == cudaStreamCaptureModeRelaxed ||
        ((capture->mode == cudaStreamCaptureModeThreadLocal ||
          thread_mode() == cudaStreamCaptureModeThreadLocal) &&
         !is_own)) {
      continue;
    }
    refused(std::string(call) + " during a capture");
    spoil(*capture);
    return false;
  }
  return true;
}

}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode());
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const std::unique_lock lock(mutex());
  static unsigned long long number = 0;
  Stream& stream = stream_of(handle);
  if (handle == nullptr || stream.capture != nullptr) {
    refused("a capture starts on a captured stream or on the default stream");
    return answer(cudaErrorStreamCaptureUnsupported);
  }
  if (number_setting("CAPTURES", 1) == 0) {
    return answer(cudaErrorNotSupported);
  }
  auto* const capture = new Capture;
  capture->number = ++number;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = &stream;
  capture->nodes[&stream];
  captures()[capture->number] = capture;
  stream.capture = capture;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* result) {
  const std::unique_lock lock(mutex());
  Stream& stream = stream_of(handle);
  *result = nullptr;
  Capture* const capture = stream.capture;
  if (capture == nullptr || capture->origin != &stream) {
    return answer(cudaErrorStreamCaptureUnmatched);
  }
  auto graph = std::make_unique<Graph>();
  bool is_joined = true;
  for (auto& [branch, nodes] : capture->nodes) {
    is_joined &= branch == &stream || capture->progress[&stream][branch] >= work_until(nodes);
    branch->capture = nullptr;
    graph->size += nodes.size();
    graph->branches.push_back(std::move(nodes));
  }
  const bool is_spoilt = capture->is_spoilt;
  captures().erase(capture->number);
  delete capture;
  if (is_spoilt || !is_joined) {
    if (!is_joined) {
      refused("a capture ends without waiting for a stream that joined it");
    }
    return answer(is_spoilt ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
  }
  *result = reinterpret_cast<cudaGraph_t>(graph.release());
  count("graphs");
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::unique_lock lock(mutex());
  const Capture* const capture = stream_of(handle).capture;
  *status = capture == nullptr   ? cudaStreamCaptureStatusNone
            : capture->is_spoilt ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t handle,
    cudaStreamCaptureStatus* status,
    unsigned long long* id,
    cudaGraph_t* graph,
    const cudaGraphNode_t** dependencies,
    const cudaGraphEdgeData** edges,
    size_t* count_of_them) {
  if (const cudaError_t error = cudaStreamIsCapturing(handle, status); error != cudaSuccess) {
    return error;
  }
  const std::unique_lock lock(mutex());
  const Capture* const capture = stream_of(handle).capture;
  if (id != nullptr) {
    *id = capture == nullptr ? 0 : capture->number;
  }
  if (graph != nullptr) {
    *graph = nullptr;
  }
  if (dependencies != nullptr) {
    *dependencies = nullptr;
  }
  if (edges != nullptr) {
    *edges = nullptr;
  }
  if (count_of_them != nullptr) {
    *count_of_them = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* size) {
  if (nodes == nullptr) {
    *size = reinterpret_cast<Graph*>(graph)->size;
  }
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(
    cudaGraphExec_t* result, cudaGraph_t graph, unsigned long long) {
  const std::unique_lock lock(mutex());
  auto* const executable = new Executable;
  executable->branches = reinterpret_cast<Graph*>(graph)->branches;
  *result = reinterpret_cast<cudaGraphExec_t>(executable);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<Executable*>(executable);
  return cudaSuccess;
}

/// Runs each branch on a stream of its own, after the earlier work of the launch stream and before
/// its later work.
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  cudaStream_t added = nullptr;
  auto* const executable = reinterpret_cast<Executable*>(handle);
  while (executable->streams.size() < executable->branches.size()) {
    cudaStreamCreateWithPriority(&added, 0, 0);
    executable->streams.push_back(reinterpret_cast<Stream*>(added));
  }
  const std::unique_lock lock(mutex());
  Stream& stream = stream_of(stream_handle);
  count("graph_launches");
  order_work(stream);
  using Kind = Operation::Kind;
  const auto begin = std::make_shared<Point>();
  add(stream, {Kind::kRecord, begin});
  std::map<Point*, std::shared_ptr<Point>> points;
  const auto anew = [&](const std::shared_ptr<Point>& point) -> std::shared_ptr<Point>& {
    std::shared_ptr<Point>& own = points[point.get()];
    return own == nullptr ? own = std::make_shared<Point>() : own;
  };
  for (size_t i = 0; i < executable->branches.size(); ++i) {
    Stream& branch = *executable->streams[i];
    add(branch, {Kind::kWait, begin});
    for (const Node& node : executable->branches[i]) {
      if (node.kernel != nullptr) {
        count_kernel(node.kernel);
      }
      if (!node.operation) {
        continue;
      }
      Operation operation = *node.operation;
      if (operation.point != nullptr) {
        operation.point = anew(operation.point);
      }
      if (operation.exchange != nullptr) {
        operation.exchange = operation.exchange->again();
      }
      add(branch, std::move(operation));
    }
    const auto end = std::make_shared<Point>();
    add(branch, {Kind::kRecord, end});
    add(stream, {Kind::kWait, end});
  }
  return cudaSuccess;
}

}  // extern "C"
