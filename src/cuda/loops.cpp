// Launches kernels on the plain pointers of tensors.
#include "cuda/loops.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "cuda/adamw.h"
#include "cuda/adamw_8bit.h"
#include "cuda/dropout.h"
#include "cuda/float8.h"
#include "cuda/norms.h"
#include "cuda/rope.h"
#include "cuda/scale.h"
#include "cuda/softmax_rows.h"
#include "cuda/squares.h"
#include "cuda/swiglu.h"
#include "cuda/unpack.h"

namespace lockstep::cuda {

#ifdef LOCKSTEP_HAS_CUDA_KERNELS
namespace {

using at::Tensor;

Number number_of(at::ScalarType type) {
  return type == at::kFloat      ? Number::kFloat
         : type == at::kBFloat16 ? Number::kBfloat16
                                 : Number::kHalf;
}
Number number_of(const Tensor& tensor) {
  return number_of(tensor.scalar_type());
}

void statistics(const Tensor& logits, const Tensor& targets, const ops::RowStatistics& result) {
  const c10::cuda::CUDAGuard device(logits.device());
  row_statistics(
      number_of(logits),
      logits.const_data_ptr(),
      targets.const_data_ptr<int64_t>(),
      logits.size(0),
      logits.size(1),
      logits.stride(0),
      result.maximum.data_ptr<float>(),
      result.total.data_ptr<float>(),
      result.target.data_ptr<float>(),
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void become_gradient(
    const Tensor& logits,
    const Tensor& targets,
    const Tensor& log_sum,
    const Tensor& softmax_factor,
    const Tensor& target_factor,
    float inverse_cap) {
  const c10::cuda::CUDAGuard device(logits.device());
  logits_become_gradient(
      number_of(logits),
      logits.data_ptr(),
      targets.const_data_ptr<int64_t>(),
      logits.size(0),
      logits.size(1),
      logits.stride(0),
      log_sum.const_data_ptr<float>(),
      softmax_factor.const_data_ptr<float>(),
      target_factor.const_data_ptr<float>(),
      inverse_cap,
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void adamw_step(const ops::AdamWBuffers& buffers, const Tensor& numbers) {
  const c10::cuda::CUDAGuard device(buffers.parameter.device());
  const bool has_master = buffers.parameter.scalar_type() != at::kFloat;
  const bool is_float = buffers.gradient.scalar_type() == at::kFloat;
  AdamWPointers pointers;
  pointers.gradient = is_float ? buffers.gradient.const_data_ptr<float>() : nullptr;
  pointers.low_gradient = is_float ? nullptr : buffers.gradient.const_data_ptr();
  pointers.weight = (has_master ? buffers.master : buffers.parameter).data_ptr<float>();
  pointers.exp_avg = buffers.exp_avg.data_ptr<float>();
  pointers.exp_avg_sq = buffers.exp_avg_sq.data_ptr<float>();
  pointers.low = has_master ? buffers.parameter.data_ptr() : nullptr;
  adamw(
      pointers,
      numbers.const_data_ptr<float>(),
      buffers.parameter.numel(),
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void adamw_8bit_step(const ops::AdamW8bitBuffers& buffers, const Tensor& numbers) {
  const c10::cuda::CUDAGuard device(buffers.parameter.device());
  const bool has_master = buffers.master.defined();
  const bool is_float = buffers.gradient.scalar_type() == at::kFloat;
  AdamW8bitPointers pointers;
  pointers.gradient = is_float ? buffers.gradient.const_data_ptr<float>() : nullptr;
  pointers.low_gradient = is_float ? nullptr : buffers.gradient.const_data_ptr();
  pointers.weight = (has_master ? buffers.master : buffers.parameter).data_ptr<float>();
  pointers.low = has_master ? buffers.parameter.data_ptr() : nullptr;
  pointers.exp_avg = buffers.exp_avg.data_ptr<uint8_t>();
  pointers.exp_avg_sq = buffers.exp_avg_sq.data_ptr<uint8_t>();
  pointers.exp_avg_absmax = buffers.exp_avg_absmax.data_ptr<float>();
  pointers.exp_avg_sq_absmax = buffers.exp_avg_sq_absmax.data_ptr<float>();
  pointers.maps = buffers.maps.const_data_ptr<float>();
  adamw_8bit(
      pointers,
      numbers.const_data_ptr<float>(),
      buffers.parameter.numel(),
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void drop(
    const Tensor& from,
    const Tensor& to,
    const Tensor& keys,
    const ops::DropoutPlace& place,
    uint32_t threshold,
    float scale) {
  const c10::cuda::CUDAGuard device(from.device());
  dropout(
      number_of(from),
      from.const_data_ptr(),
      to.data_ptr(),
      from.numel(),
      keys.const_data_ptr<int64_t>(),
      from.numel() / from.size(0),
      place,
      threshold,
      scale,
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void rotate_heads(
    const Tensor& from,
    const Tensor& to,
    const Tensor& cos,
    const Tensor& sin,
    float sign,
    const ops::RotatedHeads& heads) {
  const c10::cuda::CUDAGuard device(from.device());
  rotate(
      number_of(from),
      from.const_data_ptr(),
      to.data_ptr(),
      cos.const_data_ptr<float>(),
      sin.const_data_ptr<float>(),
      sign,
      heads,
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

FactoredRows factored(const ops::FactoredRows& from) {
  FactoredRows rows;
  rows.from = from.rows.const_data_ptr();
  rows.rows = from.rows.size(0);
  rows.columns = from.rows.size(1);
  rows.row_stride = from.rows.stride(0);
  rows.column_stride = from.rows.stride(1);
  if (from.factors.defined()) {
    rows.factors = from.factors.const_data_ptr<float>();
    rows.factor_of_column = from.factors.size(1) > 1 ? from.factors.stride(1) : 0;
  }
  return rows;
}

void find_largest(const ops::FactoredRows& from, const Tensor& largest) {
  const c10::cuda::CUDAGuard device(largest.device());
  if (from.rows.stride(1) != 1) {
    largest.zero_();  // must be zero, because several blocks contribute to a row
  }
  largest_of_rows(factored(from), largest.data_ptr<float>(), at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void round_rows(
    const ops::FactoredRows& from, const Tensor& largest, const ops::Float8Rows& result) {
  const c10::cuda::CUDAGuard device(largest.device());
  Float8Out out;
  out.values = static_cast<uint8_t*>(result.values.data_ptr());
  out.row_stride = result.values.stride(0);
  out.column_stride = result.values.stride(1);
  out.scales = result.scales.data_ptr<float>();
  out.has_e5m2 = result.values.scalar_type() == at::kFloat8_e5m2;
  out.is_by_row = result.scales.size(0) > 1;
  round_to_float8(
      factored(from), largest.const_data_ptr<float>(), out, at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void unpack_part(
    const Tensor& bytes, const ops::UnpackPlace& place, at::ScalarType packed, const Tensor& out) {
  const c10::cuda::CUDAGuard device(bytes.device());
  unpack(
      number_of(out.scalar_type()),
      number_of(packed),
      bytes.const_data_ptr<uint8_t>(),
      place,
      out.data_ptr(),
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void gate_up(const Tensor& gate, const Tensor& up, const Tensor& out) {
  const c10::cuda::CUDAGuard device(gate.device());
  swiglu(
      number_of(gate),
      gate.const_data_ptr(),
      up.const_data_ptr(),
      out.data_ptr(),
      gate.numel(),
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void gate_up_backward(
    const Tensor& gate,
    const Tensor& up,
    const Tensor& out_gradient,
    const Tensor& gate_gradient,
    const Tensor& up_gradient) {
  const c10::cuda::CUDAGuard device(gate.device());
  swiglu_backward(
      number_of(gate),
      gate.const_data_ptr(),
      up.const_data_ptr(),
      out_gradient.const_data_ptr(),
      gate_gradient.data_ptr(),
      up_gradient.data_ptr(),
      gate.numel(),
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

bool takes_norm(const Tensor& x, bool is_centered) {
  const auto type = x.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf) &&
         takes_norm_rows(x.size(-1) * x.element_size(), is_centered);
}

template <class T = void>
T* data_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

void norm_rows(const ops::NormTensors& tensors, float eps, ops::RmsForm form) {
  const Tensor& x = tensors.x;
  const c10::cuda::CUDAGuard device(x.device());
  const Norm norm{
      .x = x.const_data_ptr(),
      .residual = data_of(tensors.residual),
      .weight = tensors.weight.const_data_ptr(),
      .bias = data_of(tensors.bias),
      .sum = data_of(tensors.sum),
      .y = tensors.y.data_ptr(),
      .mean = data_of<float>(tensors.mean),
      .inverse = tensors.inverse.data_ptr<float>(),
      .rows = x.numel() / x.size(-1),
      .size = x.size(-1),
      .eps = eps,
      .form = form};
  normalize(number_of(x), norm, at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void norm_rows_backward(
    const ops::NormGradientInputs& inputs, const ops::NormGradients& gradients, ops::RmsForm form) {
  const Tensor& x = inputs.x;
  const c10::cuda::CUDAGuard device(x.device());
  const int64_t size = x.size(-1), rows = x.numel() / size,
                parameters = inputs.mean.defined() ? 2 : 1;
  const Tensor runs = at::empty(
      {runs_of_norm(rows, size * x.element_size()), parameters, size},
      x.options().dtype(at::kFloat));
  const NormBackward norm{
      .gradient = inputs.gradient.const_data_ptr(),
      .sum_gradient = data_of(inputs.sum_gradient),
      .x = x.const_data_ptr(),
      .weight = inputs.weight.const_data_ptr(),
      .mean = data_of<float>(inputs.mean),
      .inverse = inputs.inverse.const_data_ptr<float>(),
      .x_gradient = gradients.x.data_ptr(),
      .runs = runs.data_ptr<float>(),
      .weight_gradient = gradients.weight.data_ptr(),
      .bias_gradient = data_of(gradients.bias),
      .rows = rows,
      .size = size,
      .form = form};
  normalize_backward(number_of(x), norm, at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void squares(const Tensor& from, double share, const Tensor& sums) {
  const c10::cuda::CUDAGuard device(from.device());
  add_squares(
      number_of(from),
      from.const_data_ptr(),
      from.numel(),
      share,
      sums.data_ptr<double>(),
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void scale_by(const Tensor& values, const Tensor& factor) {
  const c10::cuda::CUDAGuard device(values.device());
  scale(
      number_of(values),
      values.data_ptr(),
      values.numel(),
      factor.const_data_ptr<float>(),
      at::cuda::getCurrentCUDAStream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

ops::CudaLoops loops() {
  return {
      .row_statistics = statistics,
      .logits_become_gradient = become_gradient,
      .adamw = adamw_step,
      .adamw_8bit = adamw_8bit_step,
      .rotate = rotate_heads,
      .dropout = drop,
      .unpack = unpack_part,
      .largest_of_rows = find_largest,
      .round_to_float8 = round_rows,
      .swiglu = gate_up,
      .swiglu_backward = gate_up_backward,
      .takes_norm = takes_norm,
      .norm = norm_rows,
      .norm_backward = norm_rows_backward,
      .add_squares = squares,
      .scale = scale_by};
}
#else
ops::CudaLoops loops() {
  return {};
}
#endif

}  // namespace lockstep::cuda
