// Implements the self-tests of operations, plans and CUDA graphs.
#include "cli/selftest_checks.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/format.h"
#include "ops/activations.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cuda_loops.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
#include "ops/float8.h"
#include "ops/linear.h"
#include "ops/norms.h"
#include "ops/packed_part.h"
#include "ops/rope.h"
#include "ops/square_sums.h"
#include "ops/token_loss.h"
#include "parallel/captured_training.h"
#include "parallel/verify.h"

namespace lockstep::cli {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// Returns the error relative to the largest element. Throws if it exceeds `tolerance`.
double compare(const Tensor& found, const Tensor& expected, double tolerance, const char* what) {
  const Tensor one = found.detach().to(at::kCPU, at::kDouble), other = expected.detach();
  const double largest = std::max(other.abs().max().item<double>(), 1e-30);
  const double error = one.sub(other).abs_().max().item<double>() / largest;
  if (!(error <= tolerance)) {
    throw std::runtime_error(fmt::format("{} is off by {:.2g} of its largest value", what, error));
  }
  return error;
}

struct Operation {
  const char* name;
  std::vector<std::vector<int64_t>>
      shapes;  // shapes of the inputs, which are all floating-point and have gradients
  std::function<Tensor(const Tensors& inputs)> run;
};

std::vector<Operation> operations() {
  const auto on = [](const Tensors& inputs, const Tensor& tensor) {
    return tensor.to(inputs[0].device());
  };
  const auto attention = [](int64_t window) {
    return [window](const Tensors& in) {
      return ops::attention(in[0], in[1], in[2], {.scale = 0.25, .window = window});
    };
  };
  const auto angles = [](const Tensors& in, bool sine) {
    const Tensor angle = at::arange(24 * 8, at::kFloat).view({24, 8}) * 0.1;
    return (sine ? angle.sin() : angle.cos()).to(in[0].device());
  };
  return {
      {"linear",
       {{64, 48}, {40, 48}, {40}},
       [](const Tensors& in) {
         return ops::linear(in[0], in[1], in[2], ops::WeightLayout::kOutIn);
       }},
      {"RMSNorm",
       {{6, 24, 48}, {48}},
       [](const Tensors& in) { return ops::rms_norm(in[0], in[1], 1e-5); }},
      {"RMSNorm of a sum",
       {{6, 24, 48}, {6, 24, 48}, {48}},
       [](const Tensors& in) {
         const ops::SumAndNorm made = ops::add_rms_norm(in[0], in[1], in[2], 1e-5);
         return at::cat({made.sum, made.norm});
       }},
      {"LayerNorm",
       {{6, 24, 48}, {48}, {48}},
       [](const Tensors& in) { return ops::layer_norm(in[0], in[1], in[2], 1e-5); }},
      {"LayerNorm of a sum",
       {{6, 24, 48}, {6, 24, 48}, {48}, {48}},
       [](const Tensors& in) {
         const ops::SumAndNorm made = ops::add_layer_norm(in[0], in[1], in[2], in[3], 1e-5);
         return at::cat({made.sum, made.norm});
       }},
      {"GELU", {{6, 24, 48}}, [](const Tensors& in) { return ops::gelu_tanh(in[0]); }},
      {"SwiGLU",
       {{6, 24, 48}, {6, 24, 48}},
       [](const Tensors& in) { return ops::swiglu(in[0], in[1]); }},
      {"RoPE",
       {{2, 24, 4, 16}},
       [=](const Tensors& in) { return ops::rotate(in[0], angles(in, false), angles(in, true)); }},
      {"attention", {{2, 4, 24, 16}, {2, 4, 24, 16}, {2, 4, 24, 16}}, attention(0)},
      {"attention of groups", {{2, 4, 24, 16}, {2, 2, 24, 16}, {2, 2, 24, 16}}, attention(0)},
      {"attention in windows", {{2, 4, 24, 16}, {2, 2, 24, 16}, {2, 2, 24, 16}}, attention(7)},
      {"attention of documents",
       {{2, 4, 24, 16}, {2, 2, 24, 16}, {2, 2, 24, 16}},
       [=](const Tensors& in) {
         Tensor starts = at::zeros({2, 24}, at::kLong);
         starts.narrow(1, 9, 15).fill_(9);
         ops::AttentionOptions options{.scale = 0.25, .document_starts = on(in, starts)};
         options.document_offsets = ops::offsets_of_documents(starts);
         options.document_offsets.offsets = on(in, options.document_offsets.offsets);
         return ops::attention(in[0], in[1], in[2], options);
       }},
      {"embedding",
       {{50, 48}},
       [=](const Tensors& in) {
         return ops::embedding(
             in[0], on(in, at::arange(60, at::kLong).remainder(37).view({6, 10})));
       }},
      {"token loss",
       {{60, 48}, {50, 48}},
       [=](const Tensors& in) {
         Tensor targets = at::arange(60, at::kLong).remainder(41);
         targets.narrow(0, 7, 5).fill_(ops::kIgnoredTarget);
         return ops::token_loss(in[0], in[1], on(in, targets));
       }},
  };
}

/// Returns the outputs and gradients of an operation, computed in `type`. `given` is the gradient
/// of its result.
Tensors results_of(
    const Operation& operation,
    const Tensors& values,
    c10::Device device,
    at::ScalarType type,
    at::ScalarType given) {
  Tensors inputs;
  for (const Tensor& value : values) {
    inputs.push_back(value.to(device, type).detach().clone().requires_grad_());
  }
  Tensors results{operation.run(inputs)};
  const Tensor gradient =
      at::arange(results[0].numel(), at::kDouble).mul_(0.7).sin_().view(results[0].sizes());
  torch::autograd::backward({results[0]}, {gradient.to(given).to(results[0].options())});
  for (const Tensor& input : inputs) {
    results.push_back(input.grad());
  }
  return results;
}

std::string check_operation(const Operation& operation, c10::Device device, at::ScalarType type) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  Tensors values;
  for (const std::vector<int64_t>& shape : operation.shapes) {
    // Round to the type, so that the reference is computed from the same values.
    values.push_back(at::randn(shape, generator).to(type).to(at::kDouble));
  }
  const Tensors found = results_of(operation, values, device, type, type);
  const Tensors expected = results_of(operation, values, at::kCPU, at::kDouble, type);
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string what = i == 0 ? "the result" : fmt::format("gradient {}", i);
    worst = std::max(
        worst, compare(found[i], expected[i], type == at::kFloat ? 1e-4 : 4e-2, what.c_str()));
  }
  return fmt::format("error {:.1e}", worst);
}

std::string check_dropout(c10::Device device) {
  const Tensor x = at::arange(3 * 40 * 8, at::kFloat).view({3, 40, 8}),
               keys = at::tensor({5, 6, 7}, at::kLong);
  const Tensor found = ops::dropout(x.to(device), 0.3, keys).to(at::kCPU);
  if (!at::equal(found, ops::dropout_by_tensors(x, 0.3, keys))) {
    throw std::runtime_error("the dropped elements differ from the CPU's");
  }
  return "the same elements";
}

std::string check_adamw(c10::Device device, at::ScalarType type) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(6);
  const Tensor weight = at::randn({1000}, generator), gradient = at::randn({1000}, generator);
  const auto updated = [&](c10::Device where, auto step) {
    const auto copy = [&](const Tensor& tensor) { return tensor.to(where).clone(); };
    const ops::AdamWBuffers buffers{
        copy(weight.to(type)),
        type == at::kFloat ? Tensor() : copy(weight),
        copy(gradient.to(type)),
        copy(gradient * 0.1),
        copy(gradient.square() * 0.1)};
    step(buffers, ops::AdamWStep{.weight_decay = 0.1, .step = 3});
    return (type == at::kFloat ? buffers.parameter : buffers.master).to(at::kCPU, at::kDouble);
  };
  return fmt::format(
      "error {:.1e}",
      compare(
          updated(device, ops::adamw_step),
          updated(at::kCPU, ops::adamw_step_reference),
          1e-6,
          "the weight"));
}

/// Throws if the tensors are not bitwise equal.
std::string expect_same(const Tensor& found, const Tensor& expected) {
  if (!at::equal(found.to(at::kCPU), expected)) {
    throw std::runtime_error("the bits differ from the CPU's");
  }
  return "the same bits";
}

std::string check_unpacking(c10::Device device, ops::PackedKind kind) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const ops::PackedMatrix matrix = ops::quantize(at::randn({40, 96}, generator), {.kind = kind});
  const auto part = ops::PackedPart::whole(matrix.format, matrix.out, matrix.in);
  const Tensor bytes = ops::part_bytes(matrix, part).to(device);
  return expect_same(
      ops::unpack(part, bytes, {0, matrix.out}, {0, matrix.in}, at::kFloat),
      ops::dequantize(matrix));
}

/// Checks rounding along rows and columns. The sizes contain whole and partial tiles.
std::string check_rounding(c10::Device device) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(8);
  const Tensor matrix = at::randn({264, 520}, generator).to(at::kBFloat16);
  const Tensor powers = at::arange(520, at::kFloat).remainder(5).exp2().view({1, -1});
  const auto rounded = [&](c10::Device where) {
    Tensors made;
    for (const bool is_turned : {false, true}) {
      const Tensor rows = is_turned ? matrix.to(where).t() : matrix.to(where);
      for (const auto order : {ops::Float8Order::kRows, ops::Float8Order::kColumns}) {
        const ops::FactoredRows from{rows, powers.narrow(1, 0, rows.size(1)).to(where)};
        const Tensor largest = ops::largest_magnitudes(from, ops::SharedScale::kRow);
        for (const auto type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
          const ops::Float8Rows one = ops::to_float8(from, largest, type, order);
          made.push_back((one.values.to(at::kFloat) * one.scales).flatten());
        }
      }
    }
    return at::cat(made);
  };
  return expect_same(rounded(device), rounded(at::kCPU));
}

std::string check_squares(c10::Device device) {
  if (!device.is_cuda() || ops::cuda_loops().add_squares == nullptr) {
    return "no Lockstep kernel";
  }
  auto generator = at::make_generator<at::CPUGeneratorImpl>(9);
  const Tensor values = at::randn({100000}, generator);
  const Tensor sums = at::zeros({ops::kSquareSums}, at::dtype(at::kDouble).device(device));
  ops::cuda_loops().add_squares(values.to(device), 1, sums);
  const Tensor expected = values.to(at::kDouble).square().sum();
  return fmt::format("error {:.1e}", compare(sums.sum(), expected, 1e-6, "the sum"));
}

}  // namespace

Check check_on_all_ranks(
    train::RankContext& rank_context,
    std::string group,
    std::string name,
    const std::function<std::string()>& body) {
  Check check{std::move(group), std::move(name), true, "", 0};
  std::string failure;
  try {
    check.detail = body();
  } catch (const std::exception& error) {
    failure = std::string(error.what());
    failure = failure.substr(0, failure.find('\n'));
  }
  const auto failures = comm::gather_strings(rank_context.communicator, failure);
  for (size_t rank = 0; rank < failures.size() && check.passed; ++rank) {
    if (!failures[rank].empty()) {
      check.passed = false;
      check.detail =
          failures.size() > 1 ? fmt::format("rank {}: {}", rank, failures[rank]) : failures[rank];
    }
  }
  return check;
}

parallel::ModelSpec small_model(const train::RankContext& rank_context) {
  const int heads = std::max(8, rank_context.size());  // each rank may have one head
  parallel::ModelSpec spec;
  spec.config = model::parse_model_config(
      fmt::format(
          R"({{"model_type": "llama", "vocab_size": 101, "hidden_size": {}, "intermediate_size": 96,
              "num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {},
              "max_position_embeddings": 64, "initializer_range": 0.1}})",
          8 * heads,
          std::max(2, rank_context.size()),
          heads,
          heads),
      "the self-test");
  spec.device = rank_context.device;
  spec.fill = parallel::fill_at_random(spec.config, 3);
  return spec;
}

std::vector<Check> check_operations(train::RankContext& rank_context) {
  std::vector<Check> checks;
  for (const Operation& operation : operations()) {
    for (const auto& [type, name] :
         {std::pair(at::kFloat, "float32"), std::pair(at::kBFloat16, "bfloat16")}) {
      checks.push_back(check_on_all_ranks(
          rank_context,
          "operations",
          fmt::format("{}, {}", operation.name, name),
          [&, type = type] { return check_operation(operation, rank_context.device, type); }));
    }
  }
  const c10::Device device = rank_context.device;
  const std::pair<const char*, std::function<std::string()>> others[] = {
      {"dropout", [&] { return check_dropout(device); }},
      {"AdamW, float32", [&] { return check_adamw(device, at::kFloat); }},
      {"AdamW, bfloat16", [&] { return check_adamw(device, at::kBFloat16); }},
      {"squares of gradients", [&] { return check_squares(device); }},
      {"weights of 4 bits", [&] { return check_unpacking(device, ops::PackedKind::kNf4); }},
      {"weights of 8 bits", [&] { return check_unpacking(device, ops::PackedKind::kInt8); }},
      {"rounding to 8-bit floats", [&] { return check_rounding(device); }}};
  for (const auto& [name, check] : others) {
    checks.push_back(check_on_all_ranks(rank_context, "operations", name, check));
  }
  return checks;
}

std::vector<Check> check_plans(train::RankContext& rank_context) {
  const int ranks = rank_context.size();
  struct Case {
    const char* name;
    mesh::Mesh mesh;
    parallel::Plan plan;
  };
  const parallel::OptimizerOffload to_host{.device = parallel::OffloadDevice::kCpu};
  std::vector<Case> cases{
      {"data parallelism", {.data = ranks}, {}},
      {"ZeRO 3", {.data = ranks}, {.zero_stage = 3}},
      {"offload of the optimizer",
       {.data = ranks},
       {.zero_stage = 1, .offload_optimizer = to_host}},
      {"offload of parameters",
       {.data = ranks},
       {.zero_stage = 3, .offload_optimizer = to_host, .offload_parameters = true}}};
  if (ranks > 1) {
    cases.push_back({"tensor parallelism", {.tensor = ranks}, {}});
    cases.push_back({"pipeline parallelism", {.pipeline = ranks}, {.accumulation_steps = 4}});
    cases.push_back(
        {"pipeline, zero bubble",
         {.pipeline = ranks},
         {.accumulation_steps = 4, .pipeline = {.schedule = "zb-h1"}}});
    cases.push_back({"context parallelism", {.context = ranks}, {}});
    cases.push_back(
        {"context parallelism, Ulysses",
         {.context = ranks},
         {.context_attention = parallel::ContextAttention::kUlysses}});
  }
  const parallel::ModelSpec spec = small_model(rank_context);
  parallel::VerifyOptions options;
  options.rows = std::max<int64_t>(4, 2 * ranks);
  options.length = 32;
  std::vector<Check> checks;
  for (const Case& each : cases) {
    checks.push_back(check_on_all_ranks(rank_context, "plans", each.name, [&]() -> std::string {
      parallel::ParallelGroups axes(rank_context.communicator, each.mesh, rank_context.group);
      parallel::Plan plan = each.plan;
      plan.sequence_length = options.length;
      const parallel::Verification found = parallel::verify(spec, plan, axes, options);
      if (found.first_difference) {
        throw std::runtime_error(*found.first_difference);
      }
      double worst = 0;
      for (const parallel::VerifiedGradient& gradient : found.gradients) {
        worst = std::max(worst, gradient.error);
      }
      return fmt::format("error {:.1e}", worst);
    }));
  }
  return checks;
}

std::vector<Check> check_graphs(train::RankContext& rank_context) {
  return {check_on_all_ranks(rank_context, "plans", "captured steps", [&]() -> std::string {
    parallel::ParallelGroups axes(
        rank_context.communicator, {.data = rank_context.size()}, rank_context.group);
    const parallel::ModelSpec spec = small_model(rank_context);
    const auto plain = parallelize(spec, {}, axes), model = parallelize(spec, {}, axes);
    nn::ForwardInputs inputs;
    inputs.ids = at::arange(2 * 32, at::kLong)
                     .add_(7 * rank_context.rank())
                     .remainder_(101)
                     .view({2, 32})
                     .to(rank_context.device);
    inputs.targets = nn::next_tokens(inputs.ids);
    inputs.samples = at::arange(2 * rank_context.rank(), 2 * rank_context.rank() + 2, at::kLong);
    inputs.training = true;
    const int64_t targets = 2 * 31 * rank_context.size();
    parallel::CapturedTraining captured(*model, {&inputs, 1});
    for (int step = 0; step < 6; ++step) {
      const double one = plain->forward_backward({&inputs, 1}, targets).loss;
      plain->optimizer_step(1e-3);
      const double other = captured.run({&inputs, 1}, targets, 1e-3).loss;
      if (!(std::abs(one - other) <= 1e-4 * std::abs(one))) {
        throw std::runtime_error(
            fmt::format("loss {} in step {}, but {} without capture", other, step + 1, one));
      }
    }
    return captured.is_captured() ? "replayed" : "ran uncaptured: no graph was created";
  })};
}

}  // namespace lockstep::cli
