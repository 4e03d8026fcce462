// Programs with a defect of order each, and the same without it: plants NAME. What the null GPU
// says of them is compared in tests/program/test_null_gpu.py.
#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace {

constexpr int64_t kSize = 1 << 20;

at::Tensor on_gpu() {
  return at::zeros({kSize}, at::TensorOptions().device(at::kCUDA));
}

c10::cuda::CUDAStream other_stream() {
  static const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
  return stream;
}

void wait(c10::cuda::CUDAStream waiting, c10::cuda::CUDAStream awaited) {
  at::cuda::CUDAEvent event;
  event.record(awaited);
  event.block(waiting);
}

/// One stream reads what another writes.
void read(bool waits) {
  at::Tensor tensor = on_gpu();
  const auto main = c10::cuda::getCurrentCUDAStream();
  wait(other_stream(), main);
  {
    const c10::cuda::CUDAStreamGuard guard(other_stream());
    tensor.add_(1);
  }
  if (waits) {
    wait(main, other_stream());
  }
  const at::Tensor twice = tensor * 2;
  c10::cuda::device_synchronize();
}

/// A part of a buffer is written by a copy while the other part is read, or the same part.
void copy(bool is_apart) {
  at::Tensor tensor = on_gpu(), source = on_gpu();
  wait(other_stream(), c10::cuda::getCurrentCUDAStream());
  {
    const c10::cuda::CUDAStreamGuard guard(other_stream());
    tensor.narrow(0, 0, kSize / 2).copy_(source.narrow(0, 0, kSize / 2));
  }
  const at::Tensor twice = tensor.narrow(0, is_apart ? kSize / 2 : kSize / 4, kSize / 4) * 2;
  c10::cuda::device_synchronize();
}

/// What one stream reads is written by another.
void write(bool waits) {
  at::Tensor tensor = on_gpu();
  const auto main = c10::cuda::getCurrentCUDAStream();
  wait(other_stream(), main);
  at::Tensor twice;
  {
    const c10::cuda::CUDAStreamGuard guard(other_stream());
    twice = tensor * 2;
  }
  if (waits) {
    wait(main, other_stream());
  }
  tensor.zero_();
  c10::cuda::device_synchronize();
}

/// What another stream reads is freed, and given out again.
void free(bool is_recorded) {
  const auto main = c10::cuda::getCurrentCUDAStream();
  at::Tensor twice;
  {
    at::Tensor tensor = on_gpu();
    wait(other_stream(), main);
    {
      const c10::cuda::CUDAStreamGuard guard(other_stream());
      twice = tensor * 2;
    }
    if (is_recorded) {
      tensor.record_stream(other_stream().unwrap());
    }
  }
  const at::Tensor next = at::empty({kSize}, at::TensorOptions().device(at::kCUDA));
  c10::cuda::device_synchronize();
}

}  // namespace

int main(int count, char** words) {
  const std::map<std::string, std::function<void()>> plants = {
      {"read-before-wait", [] { read(false); }},
      {"read-after-wait", [] { read(true); }},
      {"copy-before-wait", [] { copy(false); }},
      {"copy-apart", [] { copy(true); }},
      {"write-before-wait", [] { write(false); }},
      {"write-after-wait", [] { write(true); }},
      {"free-before-done", [] { free(false); }},
      {"free-recorded", [] { free(true); }},
  };
  const auto found = plants.find(count > 1 ? words[1] : "");
  if (found == plants.end()) {
    std::fprintf(stderr, "plants NAME\n");
    return 2;
  }
  found->second();
  return 0;
}
