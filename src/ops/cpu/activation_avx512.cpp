// bfloat16 activations with AVX512-BF16. Compiled with separate instruction flags
// (cmake/Modules.cmake); see tile.h.
#if defined(__AVX512BF16__)

#include "ops/cpu/activation_kernel.h"
#include "ops/cpu/tile.h"

namespace lockstep::ops::kernel {
namespace {

constexpr float kLog2E = 1.44269504F;
// (1 + tanh(u)) / 2 equals the logistic function of 2 u.
constexpr float kTwice = 1.5957691216F, kCubic = 0.044715F;

/// 1 / (1 + 2^x), computed from an estimate within 2^-14 by one Newton step, and its complement to
/// 1.
struct Logistic {
  __m512 value, rest;
  explicit Logistic(__m512 x) {
    const __m512 power = power_of_two(_mm512_min_ps(all(100), x));  // NaN propagates
    const __m512 below = _mm512_add_ps(power, all(1)), estimate = _mm512_rcp14_ps(below);
    value = _mm512_mul_ps(estimate, _mm512_fnmadd_ps(below, estimate, all(2)));
    rest = _mm512_mul_ps(power, value);
  }
};

struct Gelu {
  static constexpr bool kHasOther = false;

  static Logistic logistic(__m512 v, __m512 square) {
    constexpr float kFactor = -kTwice * kLog2E;
    return Logistic(_mm512_mul_ps(v, _mm512_fmadd_ps(square, all(kFactor * kCubic), all(kFactor))));
  }
  static __m512 forward(__m512 v, __m512) {
    return _mm512_mul_ps(v, logistic(v, _mm512_mul_ps(v, v)).value);
  }
  static void backward(__m512 v, __m512, __m512 dy, __m512& dx, __m512&) {
    const __m512 square = _mm512_mul_ps(v, v);
    const Logistic s = logistic(v, square);
    const __m512 slope = _mm512_fmadd_ps(square, all(3 * kCubic * kTwice), all(kTwice));
    const __m512 curve = _mm512_mul_ps(_mm512_mul_ps(v, slope), s.rest);
    dx = _mm512_mul_ps(dy, _mm512_fmadd_ps(curve, s.value, s.value));
  }
};

struct Swiglu {
  static constexpr bool kHasOther = true;

  static Logistic logistic(__m512 g) { return Logistic(_mm512_mul_ps(g, all(-kLog2E))); }
  static __m512 forward(__m512 g, __m512 u) {
    return _mm512_mul_ps(_mm512_mul_ps(g, logistic(g).value), u);
  }
  static void backward(__m512 g, __m512 u, __m512 dy, __m512& dg, __m512& du) {
    const Logistic s = logistic(g);
    const __m512 share = _mm512_mul_ps(dy, s.value);
    dg = _mm512_mul_ps(_mm512_mul_ps(share, u), _mm512_fmadd_ps(g, s.rest, all(1)));
    du = _mm512_mul_ps(share, g);
  }
};

/// Prefetches data kBytes ahead, because hardware prefetchers stop at page boundaries.
inline void ask_ahead(const Half* at) {
  constexpr int64_t kBytes = 2048;
  _mm_prefetch(reinterpret_cast<const char*>(at) + kBytes, _MM_HINT_T0);
}

template <class Function>
void forward(const ActivationForward& f, int64_t count) {
  const auto *x = static_cast<const Half*>(f.x), *other = static_cast<const Half*>(f.other);
  auto* y = static_cast<Half*>(f.y);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t some = count - i;
    ask_ahead(x + i);
    ask_ahead(y + i);
    __m512 second = _mm512_setzero_ps();
    if constexpr (Function::kHasOther) {
      ask_ahead(other + i);
      second = load(other + i, some);
    }
    store(y + i, Function::forward(load(x + i, some), second), some);
  }
}

template <class Function>
void backward(const ActivationBackward& b, int64_t count) {
  const auto *x = static_cast<const Half*>(b.x), *other = static_cast<const Half*>(b.other);
  const auto* y_gradient = static_cast<const Half*>(b.y_gradient);
  auto* x_gradient = static_cast<Half*>(b.x_gradient);
  auto* other_gradient = static_cast<Half*>(b.other_gradient);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t some = count - i;
    ask_ahead(x + i);
    ask_ahead(y_gradient + i);
    ask_ahead(x_gradient + i);
    __m512 second = _mm512_setzero_ps(), first_gradient, second_gradient;
    if constexpr (Function::kHasOther) {
      ask_ahead(other + i);
      ask_ahead(other_gradient + i);
      second = load(other + i, some);
    }
    Function::backward(
        load(x + i, some), second, load(y_gradient + i, some), first_gradient, second_gradient);
    store(x_gradient + i, first_gradient, some);
    if constexpr (Function::kHasOther) {
      store(other_gradient + i, second_gradient, some);
    }
  }
}

}  // namespace

const ActivationLoops kGelu{forward<Gelu>, backward<Gelu>};
const ActivationLoops kSwiglu{forward<Swiglu>, backward<Swiglu>};

}  // namespace lockstep::ops::kernel

#endif  // __AVX512BF16__
