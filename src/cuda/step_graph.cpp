// Captures steps in CUDA graphs and replays them.
#include "cuda/step_graph.h"

#include <map>
#include <mutex>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

namespace lockstep::cuda {
namespace {

class CapturedGraph final : public ops::StepGraph {
 public:
  explicit CapturedGraph(const std::function<void()>& body) {
    // The graph allocates from a separate pool. A capture cannot free cached memory, so the cache
    // is emptied first.
    c10::cuda::CUDACachingAllocator::emptyCache();
    // Uses thread-local mode, because NCCL's and autograd's threads make calls that are forbidden
    // during a global capture.
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      body();
    } catch (...) {
      end_quietly();
      throw;
    }
    graph_.capture_end();
  }
  void replay() override { graph_.replay(); }

 private:
  /// Ends a failed capture, which also throws.
  void end_quietly() noexcept {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {  // the error of the body is rethrown instead
    }
  }

  at::cuda::CUDAGraph graph_;
};

/// Returns the side stream of the device. There is only one per device: the allocator caches memory
/// per stream, so a new stream for each capture would need additional memory.
c10::cuda::CUDAStream stream_aside(c10::DeviceIndex device) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::scoped_lock lock(mutex);
  return streams.try_emplace(device, c10::cuda::getStreamFromPool(false, device)).first->second;
}

/// Runs `body` on the side stream, in order with the current stream.
void on_stream_aside(c10::Device device, const std::function<void()>& body) {
  const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device.index());
  const c10::cuda::CUDAStream aside = stream_aside(device.index());
  at::cuda::CUDAEvent before, after;
  before.record(current);
  before.block(aside);
  {
    const c10::cuda::CUDAStreamGuard guard(aside);
    body();
  }
  after.record(aside);
  after.block(current);
}

}  // namespace

void run_aside(c10::Device device, const std::function<void()>& body) {
  on_stream_aside(device, body);
}

std::unique_ptr<ops::StepGraph> capture(c10::Device device, const std::function<void()>& body) {
  std::unique_ptr<ops::StepGraph> graph;
  on_stream_aside(device, [&] { graph = std::make_unique<CapturedGraph>(body); });
  return graph;
}

}  // namespace lockstep::cuda
