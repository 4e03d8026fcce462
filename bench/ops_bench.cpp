// Operations with loops of their own beside the plain ones that they replace: time, and the rate of
// matrix products where there are any. `make bench-ops`.
#include <memory>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include "ops/activations.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cpu/machine.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/host_memory.h"
#include "ops/linear.h"
#include "ops/norms.h"
#include "ops/packed_part.h"
#include "ops/rope.h"
#include "ops/token_loss.h"
#include "optim/gradient_norm.h"

namespace lockstep::ops {
namespace {

at::ScalarType type_of(const benchmark::State& state) {
  return state.range(0) == 16 ? at::kBFloat16 : at::kFloat;
}

Tensor values(at::IntArrayRef sizes, at::ScalarType type) {
  return at::randn(sizes).to(type).requires_grad_();
}

void set_rate(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(
      flops * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

/// Forward and backward.
template <class Function>
void run(benchmark::State& state, const std::vector<Tensor>& inputs, const Function& function) {
  for (auto _ : state) {
    const Tensor y = function(inputs);
    y.backward(y.dim() == 0 ? Tensor() : at::ones_like(y));
    for (const Tensor& input : inputs) {
      input.mutable_grad().reset();
    }
  }
}

/// {bits of the type, rows, width, vocabulary, unit: a MatrixUnit, or -1 for the plain formula}
void token_loss_bench(benchmark::State& state) {
  const int64_t rows = state.range(1), width = state.range(2), vocabulary = state.range(3);
  const auto unit = static_cast<MatrixUnit>(std::max<int64_t>(state.range(4), 0));
  if (unit > find_matrix_unit()) {
    state.SkipWithError("this processor does not have it");
    return;
  }
  matrix_unit() = unit;
  const Tensor targets = at::randint(vocabulary, {rows}, at::kLong);
  const std::vector<Tensor> inputs{
      values({rows, width}, type_of(state)), values({vocabulary, width}, type_of(state))};
  run(state, inputs, [&](const std::vector<Tensor>& in) {
    return state.range(4) < 0 ? token_loss_reference(in[0], in[1], targets)
                              : token_loss(in[0], in[1], targets);
  });
  matrix_unit() = find_matrix_unit();
  set_rate(state, 6.0 * static_cast<double>(rows * width * vocabulary));
}
BENCHMARK(token_loss_bench)
    ->ArgsProduct({{16, 32}, {1024}, {256}, {50257}, {-1, 0, 1, 2, 3}})
    ->Args({16, 1024, 512, 8192, 3})
    ->Args({32, 1024, 512, 8192, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// {bits, rows, in, out, 0: ATen's, 1: ours}
void linear_bench(benchmark::State& state) {
  const int64_t rows = state.range(1), in = state.range(2), out = state.range(3);
  const auto type = type_of(state);
  run(state,
      {values({rows, in}, type), values({in, out}, type), values({out}, type)},
      [&](const std::vector<Tensor>& of) {
        return state.range(4) == 0 ? at::linear(of[0], of[1].t(), of[2])
                                   : linear(of[0], of[1], of[2], WeightLayout::kInOut);
      });
  set_rate(state, 6.0 * static_cast<double>(rows * in * out));
}
BENCHMARK(linear_bench)
    ->ArgsProduct({{16}, {32, 1024}, {256}, {256, 1024}, {0, 1}})
    ->ArgsProduct({{16}, {1024}, {512}, {512, 2048}, {0, 1}})
    ->ArgsProduct({{16}, {1024}, {2048}, {512}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

/// {bits of a weight's number (16, 8, 4), rows of x, outputs}: a token's rows times a weight that
/// is read once. Of few outputs from a cache, of many from memory.
void few_rows_bench(benchmark::State& state) {
  constexpr int64_t kIn = 2048;
  const int64_t bits = state.range(0), rows = state.range(1), out = state.range(2);
  const at::NoGradGuard no_gradient;
  const Tensor x = at::randn({rows, kIn}).to(at::kBFloat16);
  const Tensor weight = at::randn({out, kIn}).to(at::kBFloat16);
  const PackedFormat format{
      bits == 8 ? PackedKind::kInt8 : PackedKind::kNf4, 64, false, at::kBFloat16};
  const PackedPart part = PackedPart::whole(format, out, kIn);
  const Tensor bytes = bits == 16 ? weight : part_bytes(quantize(weight, format), part);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        bits == 16 ? linear(x, bytes, std::nullopt, WeightLayout::kOutIn)
                   : packed_linear(part, bytes, x, {}));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.nbytes()));
}
BENCHMARK(few_rows_bench)
    ->ArgsProduct({{16, 8, 4}, {1, 4}, {256, 32768}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

/// {bits, length, 0: ATen's, 1: tiles, 2: the loops chosen}
void attention_bench(benchmark::State& state) {
  const int64_t length = state.range(1);
  AttentionOptions options;
  options.scale = 0.125;
  const auto input = [&] { return values({4, 4, length, 64}, type_of(state)); };
  run(state, {input(), input(), input()}, [&](const std::vector<Tensor>& in) {
    return (
        state.range(2) == 0   ? fused_attention
        : state.range(2) == 1 ? tiled_attention
                              : attention)(in[0], in[1], in[2], options);
  });
}
BENCHMARK(attention_bench)
    ->ArgsProduct({{16, 32}, {256, 1024}, {0, 1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// {bits, 0: ATen's, 1: ours}
void gelu_bench(benchmark::State& state) {
  run(state, {values({1024, 1024}, type_of(state))}, [&](const std::vector<Tensor>& in) {
    return state.range(1) == 0 ? at::gelu(in[0], "tanh") : gelu_tanh(in[0]);
  });
}
BENCHMARK(gelu_bench)->ArgsProduct({{16, 32}, {0, 1}})->Unit(benchmark::kMillisecond);

void swiglu_bench(benchmark::State& state) {
  const auto input = [&] { return values({1024, 1024}, type_of(state)); };
  run(state, {input(), input()}, [&](const std::vector<Tensor>& in) {
    return state.range(1) == 0 ? at::silu(in[0]) * in[1] : swiglu(in[0], in[1]);
  });
}
BENCHMARK(swiglu_bench)->ArgsProduct({{16, 32}, {0, 1}})->Unit(benchmark::kMillisecond);

void layer_norm_bench(benchmark::State& state) {
  const auto type = type_of(state);
  run(state,
      {values({1024, 256}, type), values({256}, type), values({256}, type)},
      [&](const std::vector<Tensor>& in) {
        return state.range(1) == 0 ? at::layer_norm(in[0], {256}, in[1], in[2])
                                   : layer_norm(in[0], in[1], in[2], 1e-5);
      });
}
BENCHMARK(layer_norm_bench)->ArgsProduct({{16, 32}, {0, 1}})->Unit(benchmark::kMillisecond);

/// Bits, 0: an addition and the norm, 1: both in one.
void add_layer_norm_bench(benchmark::State& state) {
  const auto type = type_of(state);
  run(state,
      {values({1024, 256}, type),
       values({1024, 256}, type),
       values({256}, type),
       values({256}, type)},
      [&](const std::vector<Tensor>& in) {
        if (state.range(1) == 0) {
          const Tensor sum = in[0] + in[1];
          return sum + layer_norm(sum, in[2], in[3], 1e-5);
        }
        const auto both = add_layer_norm(in[0], in[1], in[2], in[3], 1e-5);
        return both.sum + both.norm;
      });
}
BENCHMARK(add_layer_norm_bench)->ArgsProduct({{16, 32}, {0, 1}})->Unit(benchmark::kMillisecond);

/// Bits, 0: by tensors, 1: the loop, 2: within the split of a packed projection
void rope_bench(benchmark::State& state) {
  const Tensor angle = at::randn({256, 32}), cos = angle.cos(), sin = angle.sin();
  const auto packed = values({4, 256, 3 * 4 * 64}, type_of(state));
  run(state, {packed}, [&](const std::vector<Tensor>& in) {
    if (state.range(1) == 2) {
      const auto parts = split_rotated_heads(in[0], 64, 4, cos, sin);
      return at::cat({parts[0], parts[1], parts[2]});
    }
    const Tensor heads = in[0].unflatten(-1, {12, 64});
    const auto turn = [&](int64_t first) {
      const Tensor x = heads.narrow(2, first, 4);
      if (state.range(1) == 1) {
        return rotate(x, cos, sin);
      }
      const Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);  // [T, 1, d]
      const Tensor a = x.narrow(-1, 0, 32), b = x.narrow(-1, 32, 32);
      return at::cat({a * c - b * s, b * c + a * s}, -1).to(x.scalar_type());
    };
    const auto part = [](const Tensor& x) { return x.transpose(1, 2); };
    return at::cat({part(turn(0)), part(turn(4)), part(heads.narrow(2, 8, 4))});
  });
}
BENCHMARK(rope_bench)->ArgsProduct({{16, 32}, {0, 1, 2}})->Unit(benchmark::kMillisecond);

void dropout_bench(benchmark::State& state) {
  const Tensor keys = at::arange(4);
  run(state, {values({4, 256, 256}, type_of(state))}, [&](const std::vector<Tensor>& in) {
    return state.range(1) == 0 ? at::dropout(in[0], 0.1, true) : dropout(in[0], 0.1, keys);
  });
}
BENCHMARK(dropout_bench)->ArgsProduct({{16, 32}, {0, 1}})->Unit(benchmark::kMillisecond);

void embedding_bench(benchmark::State& state) {
  const Tensor ids = at::randint(8192, {1024}, at::kLong);
  run(state, {values({8192, 256}, type_of(state))}, [&](const std::vector<Tensor>& in) {
    return state.range(1) == 0 ? at::embedding(in[0], ids) : ops::embedding(in[0], ids);
  });
}
BENCHMARK(embedding_bench)->ArgsProduct({{16, 32}, {0, 1}})->Unit(benchmark::kMillisecond);

/// The same arrays, each read or written once, with as little arithmetic as there can be: the
/// memory bandwidth that AdamW's update could have.
template <class Low>
#if defined(__x86_64__)
__attribute__((target("avx2")))
#endif
void stream(const Low* gradient, float* weight, float* m, float* v, Low* low, int64_t count) {
#pragma GCC ivdep  // the arrays do not overlap
  for (int64_t i = 0; i < count; ++i) {
    const auto g = static_cast<float>(gradient[i]);
    weight[i] += g;
    m[i] += g;
    v[i] += g;
    if (low != nullptr) {
      low[i] = static_cast<Low>(gradient[i] + Low{1});
    }
  }
}

template <class Low>
void stream_all(const AdamWBuffers& buffers, int64_t count) {
  const bool has_low = buffers.master.defined();
  at::parallel_for(0, count, 1 << 16, [&](int64_t begin, int64_t end) {
    stream(
        static_cast<const Low*>(buffers.gradient.const_data_ptr()) + begin,
        (has_low ? buffers.master : buffers.parameter).data_ptr<float>() + begin,
        buffers.exp_avg.data_ptr<float>() + begin,
        buffers.exp_avg_sq.data_ptr<float>() + begin,
        has_low ? static_cast<Low*>(buffers.parameter.data_ptr()) + begin : nullptr,
        end - begin);
  });
}

/// {0: ATen's operations, 1: ours, 2: the memory alone; bits of the parameters; threads}. Both
/// types move 28 bytes an element.
void adamw_bench(benchmark::State& state) {
  const int64_t count = int64_t{16} << 20;
  const bool half = state.range(1) == 16;
  const auto zeros = [&](at::ScalarType type) { return at::zeros({count}, type); };
  AdamWBuffers buffers;
  buffers.parameter = zeros(half ? at::kBFloat16 : at::kFloat);
  buffers.master = half ? zeros(at::kFloat) : Tensor();
  buffers.gradient = at::ones({count}, buffers.parameter.scalar_type());
  buffers.exp_avg = zeros(at::kFloat);
  buffers.exp_avg_sq = zeros(at::kFloat);
  at::set_num_threads(static_cast<int>(state.range(2)));
  for (auto _ : state) {
    if (state.range(0) < 2) {
      (state.range(0) == 0 ? adamw_step_reference : adamw_step)(buffers, {});
    } else if (half) {
      stream_all<uint16_t>(buffers, count);
    } else {
      stream_all<float>(buffers, count);
    }
  }
  at::set_num_threads(1);
  state.counters["GB/s"] = benchmark::Counter(
      28e-9 * static_cast<double>(count) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}
BENCHMARK(adamw_bench)
    ->ArgsProduct({{0, 1, 2}, {16, 32}, {1, 2}})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// The squares of gradients, in a pass of their own and, as training counts them, of blocks that
/// were just copied. {bits of the type, 0: ATen's norm, 1: ours, 2: the copy alone, 3: the copy and
/// the squares}
void gradient_norm_bench(benchmark::State& state) {
  const int64_t count = int64_t{16} << 20, block = int64_t{1} << 16;
  const Tensor from = at::ones({count}, type_of(state)), to = at::zeros_like(from);
  for (auto _ : state) {
    if (state.range(1) == 0) {
      benchmark::DoNotOptimize(at::linalg_vector_norm(from, 2).item<float>());
    } else if (state.range(1) == 1) {
      benchmark::DoNotOptimize(optim::squared_norm(from));
    } else {
      for (int64_t at = 0; at < count; at += block) {
        const Tensor part = to.narrow(0, at, block);
        part.copy_(from.narrow(0, at, block));
        if (state.range(1) == 3) {
          benchmark::DoNotOptimize(optim::squared_norm(part));
        }
      }
    }
  }
}
BENCHMARK(gradient_norm_bench)
    ->ArgsProduct({{16, 32}, {0, 1, 2, 3}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep::ops

int main(int argc, char** argv) {
  at::set_num_threads(1);
  lockstep::ops::keep_host_memory();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
