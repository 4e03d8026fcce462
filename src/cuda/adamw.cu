#include "cuda/adamw.h"
#include "cuda/launch.h"
#include "cuda/number.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;  // each thread takes further elements then

template <class Gradient>
__global__ void adamw_kernel(
    const Gradient* gradient, AdamWPointers p, const float* numbers, int64_t count) {
  // In the order of ops::AdamWStep's factors (ops/cpu/adamw_kernel.h).
  const float scale = numbers[0], keep = numbers[1], beta1 = numbers[2], new1 = numbers[3];
  const float beta2 = numbers[4], new2 = numbers[5], rate = numbers[6], root = numbers[7];
  const float epsilon = numbers[8];
  auto* low = static_cast<__nv_bfloat16*>(p.low);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    const float g = widen(gradient[i]) * scale;
    const float m = beta1 * p.exp_avg[i] + new1 * g;
    const float v = beta2 * p.exp_avg_sq[i] + new2 * (g * g);
    const float w = keep * p.weight[i] - rate * (m / (sqrtf(v) * root + epsilon));
    p.exp_avg[i] = m;
    p.exp_avg_sq[i] = v;
    p.weight[i] = w;
    if (low != nullptr) {
      low[i] = __float2bfloat16(w);
    }
  }
}

}  // namespace

void adamw(
    const AdamWPointers& pointers, const float* numbers, int64_t count, cudaStream_t stream) {
  const int64_t needed = (count + kThreads - 1) / kThreads;
  const int64_t blocks = needed < kMostBlocks ? needed : kMostBlocks;
  if (pointers.gradient != nullptr) {
    launch(
        adamw_kernel<float>, blocks, kThreads, stream, pointers.gradient, pointers, numbers, count);
  } else {
    const auto* gradient = static_cast<const __nv_bfloat16*>(pointers.low_gradient);
    launch(
        adamw_kernel<__nv_bfloat16>, blocks, kThreads, stream, gradient, pointers, numbers, count);
  }
}

}  // namespace lockstep::cuda
