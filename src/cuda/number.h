// Element types that the kernels support.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace lockstep::cuda {

enum class Number { kFloat, kBfloat16, kHalf };

inline __host__ __device__ float widen(float value) {
  return value;
}
inline __host__ __device__ float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
inline __host__ __device__ float widen(__half value) {
  return __half2float(value);
}
inline __host__ __device__ void narrow(float value, float& out) {
  out = value;
}
inline __host__ __device__ void narrow(float value, __nv_bfloat16& out) {
  out = __float2bfloat16(value);
}
inline __host__ __device__ void narrow(float value, __half& out) {
  out = __float2half(value);
}

/// Calls function(T{}) with the C++ type of `number`.
template <class Function>
void with_type(Number number, const Function& function) {
  switch (number) {
    case Number::kFloat:
      return function(float{});
    case Number::kBfloat16:
      return function(__nv_bfloat16{});
    case Number::kHalf:
      return function(__half{});
  }
}

}  // namespace lockstep::cuda
