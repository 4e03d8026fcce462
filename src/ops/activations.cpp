// GELU and SwiGLU activations as fused autograd functions.
#include "ops/activations.h"

#include <type_traits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/cpu/activation_kernel.h"
#include "ops/cpu/host_loops.h"
#include "ops/cpu/machine.h"
#include "ops/cpu/vector.h"
#include "ops/cpu/vector_types.h"
#include "ops/cuda_loops.h"

namespace lockstep::ops {
namespace {

using vector::Floats;
using vector::kLanes;
using vector::load_up_to;
using vector::store_up_to;

constexpr int64_t kRowGrain = 16384;

/// Logistic function 1 / (1 + e^-x).
LOCKSTEP_INLINE Floats logistic(const Floats& x) {
  const Floats below = -x;
  return 1.0F / (1.0F + vector::exponential(below > 80.0F ? vector::splat(80) : below));
}

// (1 + tanh(u)) / 2 equals the logistic function of 2 u.
constexpr float kTwice = 1.5957691216F, kCubic = 0.044715F;

struct Gelu {
  template <class T>
  struct Forward {
    LOCKSTEP_INLINE static void run(const T* x, const T*, T* y, T*, int64_t count) {
      for (int64_t i = 0; i < count; i += kLanes) {
        const Floats v = load_up_to(x + i, count - i);
        const Floats s = logistic(kTwice * v * (kCubic * v * v + 1.0F));
        store_up_to(y + i, v * s, count - i);
      }
    }
  };
  template <class T>
  struct Backward {
    LOCKSTEP_INLINE static void run(
        const T* x, const T*, const T* y_gradient, T* x_gradient, T*, int64_t count) {
      for (int64_t i = 0; i < count; i += kLanes) {
        const Floats v = load_up_to(x + i, count - i), square = v * v;
        const Floats s = logistic(kTwice * v * (kCubic * square + 1.0F));
        const Floats slope = kTwice * (3 * kCubic * square + 1.0F);
        const Floats d = s + v * slope * (s - s * s);
        store_up_to(x_gradient + i, d * load_up_to(y_gradient + i, count - i), count - i);
      }
    }
  };
};

struct Swiglu {
  template <class T>
  struct Forward {
    LOCKSTEP_INLINE static void run(const T* gate, const T* up, T* y, T*, int64_t count) {
      for (int64_t i = 0; i < count; i += kLanes) {
        const Floats g = load_up_to(gate + i, count - i), u = load_up_to(up + i, count - i);
        store_up_to(y + i, g * logistic(g) * u, count - i);
      }
    }
  };
  template <class T>
  struct Backward {
    LOCKSTEP_INLINE static void run(
        const T* gate,
        const T* up,
        const T* y_gradient,
        T* gate_gradient,
        T* up_gradient,
        int64_t count) {
      for (int64_t i = 0; i < count; i += kLanes) {
        const Floats g = load_up_to(gate + i, count - i), u = load_up_to(up + i, count - i);
        const Floats dy = load_up_to(y_gradient + i, count - i), s = logistic(g);
        store_up_to(gate_gradient + i, dy * u * (s + g * (s - s * s)), count - i);
        store_up_to(up_gradient + i, dy * g * s, count - i);
      }
    }
  };
};

/// Returns bfloat16 loops if the processor supports AVX512-BF16; otherwise null.
template <class Function, class T>
const kernel::ActivationLoops* bfloat16_loops() {
#if defined(__x86_64__)
  if (std::is_same_v<T, vector::Bfloat16> && matrix_unit() >= MatrixUnit::kBfloat16) {
    return std::is_same_v<Function, Gelu> ? &kernel::kGelu : &kernel::kSwiglu;
  }
#endif
  return nullptr;
}

template <class T>
T* moved(T* elements, int64_t by) {
  return elements == nullptr ? nullptr : elements + by;
}

/// Computes the activation of x (GELU) or of x and `other` (SwiGLU) on the CPU.
template <class Function, class T>
Tensor forward_as(const Tensor& x, const Tensor& other) {
  Tensor y = at::empty_like(x);
  const T *a = elements<T>(x), *b = elements<T>(other);
  T* out = mutable_elements<T>(y);
  const kernel::ActivationLoops* loops = bfloat16_loops<Function, T>();
  at::parallel_for(0, x.numel(), kRowGrain, [&](int64_t begin, int64_t end) {
    if (loops != nullptr) {
      loops->forward({a + begin, moved(b, begin), out + begin}, end - begin);
      return;
    }
    vector::dispatch<typename Function::template Forward<T>>(
        a + begin, moved(b, begin), out + begin, static_cast<T*>(nullptr), end - begin);
  });
  return y;
}

template <class Function, class T>
torch::autograd::tensor_list backward_as(
    const Tensor& x, const Tensor& other, const Tensor& gradient) {
  Tensor dx = at::empty_like(x), dother = other.defined() ? at::empty_like(other) : Tensor();
  const T *a = elements<T>(x), *b = elements<T>(other), *g = elements<T>(gradient);
  T *da = mutable_elements<T>(dx), *db = mutable_elements<T>(dother);
  const kernel::ActivationLoops* loops = bfloat16_loops<Function, T>();
  at::parallel_for(0, x.numel(), kRowGrain, [&](int64_t begin, int64_t end) {
    if (loops != nullptr) {
      loops->backward(
          {a + begin, moved(b, begin), g + begin, da + begin, moved(db, begin)}, end - begin);
      return;
    }
    vector::dispatch<typename Function::template Backward<T>>(
        a + begin, moved(b, begin), g + begin, da + begin, moved(db, begin), end - begin);
  });
  return {dx, dother};
}

struct GeluFunction : torch::autograd::Function<GeluFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    const Tensor in = x.contiguous();
    context->save_for_backward({in});
    return in.scalar_type() == at::kFloat ? forward_as<Gelu, float>(in, Tensor())
                                          : forward_as<Gelu, vector::Bfloat16>(in, Tensor());
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    const Tensor x = context->get_saved_variables()[0], dy = gradient[0].contiguous();
    return {
        x.scalar_type() == at::kFloat ? backward_as<Gelu, float>(x, Tensor(), dy)[0]
                                      : backward_as<Gelu, vector::Bfloat16>(x, Tensor(), dy)[0]};
  }
};

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static Tensor forward(
      torch::autograd::AutogradContext* context, const Tensor& gate, const Tensor& up) {
    const Tensor g = gate.contiguous(), u = up.contiguous();
    context->save_for_backward({g, u});
    return g.scalar_type() == at::kFloat ? forward_as<Swiglu, float>(g, u)
                                         : forward_as<Swiglu, vector::Bfloat16>(g, u);
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    const auto saved = context->get_saved_variables();
    const Tensor dy = gradient[0].contiguous();
    return saved[0].scalar_type() == at::kFloat
               ? backward_as<Swiglu, float>(saved[0], saved[1], dy)
               : backward_as<Swiglu, vector::Bfloat16>(saved[0], saved[1], dy);
  }
};

bool has_cuda_swiglu(const Tensor& gate, const Tensor& up) {
  const auto type = gate.scalar_type();
  return cuda_loops().swiglu != nullptr && gate.is_cuda() && gate.numel() > 0 &&
         gate.sizes() == up.sizes() && type == up.scalar_type() &&
         (type == at::kFloat || type == at::kBFloat16 || type == at::kHalf);
}

/// SwiGLU by a custom CUDA kernel. Saves only its inputs for the backward pass.
struct CudaSwiglu : torch::autograd::Function<CudaSwiglu> {
  static Tensor forward(
      torch::autograd::AutogradContext* context, const Tensor& gate, const Tensor& up) {
    const Tensor g = gate.contiguous(), u = up.contiguous();
    context->save_for_backward({g, u});
    Tensor out = at::empty_like(g);
    cuda_loops().swiglu(g, u, out);
    return out;
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context, torch::autograd::tensor_list gradient) {
    const auto saved = context->get_saved_variables();
    Tensor gate_gradient = at::empty_like(saved[0]), up_gradient = at::empty_like(saved[1]);
    cuda_loops().swiglu_backward(
        saved[0], saved[1], gradient[0].contiguous(), gate_gradient, up_gradient);
    return {gate_gradient, up_gradient};
  }
};

}  // namespace

Tensor gelu_tanh(const Tensor& x) {
  return has_vector_loops(x) ? GeluFunction::apply(x) : at::gelu(x, "tanh");
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  const bool fits = has_vector_loops(gate) && has_host_loops(up) && gate.sizes() == up.sizes() &&
                    gate.scalar_type() == up.scalar_type();
  return fits                        ? SwigluFunction::apply(gate, up)
         : has_cuda_swiglu(gate, up) ? CudaSwiglu::apply(gate, up)
                                     : at::silu(gate) * up;
}

}  // namespace lockstep::ops
