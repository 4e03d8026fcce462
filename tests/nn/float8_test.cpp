// Float8 linears compared with plain products of rounded numbers.
#include "nn/float8.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "nn/packed.h"
#include "numbers.h"

namespace lockstep::nn {
namespace float8_test {

using ops::SharedScale;

/// Rounds x to a number of fraction bits: equals float8 with power-of-two scales for values close
/// to the largest.
Tensor rounded(const Tensor& x, int fraction) {
  const Tensor step = at::pow(2.0, x.abs().log2().floor().sub(fraction));
  return at::where(x == 0, x, (x / step).round() * step);
}

struct Made {
  Tensor y, of_x, of_weight, of_bias;
};

Made run(const std::shared_ptr<Float8LinearKernel>& product, const Tensor& x, const Tensor& dy) {
  std::vector<Tensor> parameters;
  product->visit_parameters([&](const Parameter& parameter) {
    parameters.push_back(parameter.value);
    parameter.value.mutable_grad() = Tensor();
  });
  const Tensor input = x.detach().requires_grad_(true);
  const Tensor y = product->forward(input, {});
  y.backward(dy);
  return {y.detach(), input.grad(), parameters[0].grad(), parameters[1].grad()};
}

TEST(Float8LinearKernel, InputsAreRoundedOnceAndGradientsOnceForAllProductsOfTheirs) {
  torch::manual_seed(1);
  for (const auto shared : {SharedScale::kAll, SharedScale::kRow}) {
    for (const auto layout : {WeightLayout::kOutIn, WeightLayout::kInOut}) {
      const auto of = [](std::vector<int64_t> sizes) {  // all values close to the largest
        return torch::rand(sizes, at::kDouble).add(0.1) * torch::randn(sizes, at::kDouble).sign();
      };
      const Tensor x = of({2, 5, 13}), dy = of({2, 5, 7}), w = of({7, 13}), b = of({7});
      const Tensor weight =
          (layout == WeightLayout::kOutIn ? w : w.t().contiguous()).clone().requires_grad_(true);
      const auto product = std::make_shared<Float8LinearKernel>(
          shared, layout, weight, b.clone().requires_grad_(true));
      const Made made = run(product, x, dy);
      const Tensor x4 = rounded(x, 3), w4 = rounded(w, 3), dy5 = rounded(dy, 2);
      numbers::expect_values(made.y, x4.matmul(w4.t()) + b, "y", 1e-12);
      numbers::expect_values(made.of_x, dy5.matmul(w4), "the input's gradient", 1e-12);
      const Tensor of_w = dy5.flatten(0, 1).t().matmul(x4.flatten(0, 1));
      numbers::expect_values(
          made.of_weight,
          layout == WeightLayout::kOutIn ? of_w : of_w.t(),
          "the weight's gradient",
          1e-12);
      numbers::expect_values(made.of_bias, dy.sum(at::IntArrayRef{0, 1}), "the bias's", 1e-12);
      EXPECT_GT(numbers::error(made.y, x.matmul(w.t()) + b), 1e-3) << "nothing was rounded";

      // Both halves of the backward pass give the same results.
      weight.mutable_grad() = Tensor();
      EXPECT_TRUE(product->input_gradient(dy, {}).equal(made.of_x));
      product->accumulate_weight_gradients(dy, x, {});
      EXPECT_TRUE(weight.grad().equal(made.of_weight));
      EXPECT_TRUE(product->matrix_rows(2, 3).equal(w.narrow(0, 2, 3)));
    }
  }
}

TEST(Float8LinearKernel, LinearsOfOneInputRoundItOnce) {
  torch::manual_seed(3);
  const auto last = std::make_shared<LastInput>();
  const auto linear = [&](const std::shared_ptr<LastInput>& shared) {
    const Tensor weight = torch::ones({7, 13}, at::kDouble);
    return std::make_shared<Float8LinearKernel>(
        SharedScale::kRow, WeightLayout::kOutIn, weight, Tensor(), shared);
  };
  Tensor x = torch::randn({2, 5, 13}, at::kDouble);
  const Tensor first = linear(last)->multiply(x);
  const void* const made = last->rows.values.const_data_ptr();
  EXPECT_TRUE(linear(last)->multiply(x).equal(first));
  EXPECT_EQ(last->rows.values.const_data_ptr(), made);
  x.mul_(3);  // modified in place: a new input
  EXPECT_TRUE(linear(last)->multiply(x).equal(linear(nullptr)->multiply(x)));
  x = torch::randn({2, 5, 13}, at::kDouble);  // possibly at the address of the old tensor
  EXPECT_TRUE(linear(last)->multiply(x).equal(linear(nullptr)->multiply(x)));
}

TEST(Float8LinearKernel, InBfloat16ItIsTheProductOfTheRoundedNumbersAndGradientsAreBfloat16) {
  torch::manual_seed(2);
  const auto of = [](std::vector<int64_t> sizes) { return torch::randn(sizes).to(at::kBFloat16); };
  const Tensor x = of({70, 96}), dy = of({70, 33});
  const Tensor weight = of({33, 96}).requires_grad_(true);
  const auto made =
      run(std::make_shared<Float8LinearKernel>(
              SharedScale::kRow, WeightLayout::kOutIn, weight, of({33}).requires_grad_(true)),
          x,
          dy);
  EXPECT_EQ(made.y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(made.of_weight.scalar_type(), at::kBFloat16);
  const auto wide = [](const Tensor& t) { return t.detach().to(at::kDouble); };
  numbers::expect_values(
      made.of_x, rounded(wide(dy), 2).matmul(rounded(wide(weight), 3)), "of x", 0x1p-8);
  // Rounding errors of 3 fraction bits mostly cancel in sums.
  numbers::expect_values(made.of_weight, wide(dy).t().matmul(wide(x)), "exact", 0.1);
}

model::ModelConfig small(int64_t layers, const std::string& more = "") {
  return model::parse_model_config(
      R"({"model_type": "llama", "vocab_size": 31, "hidden_size": 16, "intermediate_size": 24,
          "num_attention_heads": 4, "num_hidden_layers": )" +
          std::to_string(layers) + more + "}",
      "test");
}

std::set<std::string> linears_of(const model::ModelConfig& config, const model::Float8& float8) {
  const auto model = make_model(config, at::kBFloat16, at::kMeta);
  round_linears(*model, float8);
  std::set<std::string> found;
  model->visit_slots(each<Linear>([&](const SlotName& name, std::shared_ptr<Linear>& linear) {
    if (dynamic_cast<Float8LinearKernel*>(linear->product().get()) != nullptr) {
      found.insert(name.prefix);
    }
  }));
  EXPECT_EQ(found, model::float8_linears(float8, config));
  return found;
}

TEST(Float8Linears, AreThoseOfTheBlocksBetweenTheFirstAndTheLast) {
  const auto of_layer = [](const std::set<std::string>& names, int layer) {
    return std::ranges::count_if(names, [&](const std::string& name) {
      return name.find("layers." + std::to_string(layer) + ".") != std::string::npos;
    });
  };
  const auto found = linears_of(small(4), {.first = 1, .last = 2});
  EXPECT_EQ(found.size(), 7);
  EXPECT_EQ(of_layer(found, 1), 7);
  EXPECT_EQ(linears_of(small(1), {.first = 0, .last = 0}).size(), 7);
}

std::string problem_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.message() + " " + error.remedy();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(Float8Linears, WhatCannotBeRoundedIsRefusedWithTheReason) {
  using ::testing::HasSubstr;
  EXPECT_THAT(
      problem_of([] { linears_of(small(1), {}); }),
      ::testing::AllOf(HasSubstr("1 block,"), HasSubstr("num_layers_at_start_in_bf16=0")));
  EXPECT_THAT(
      problem_of([] {
        const auto config = small(3);
        const auto model = make_model(config, at::kBFloat16, at::kMeta);
        Packing packing;
        packing["model.layers.1.mlp.up_proj"] = {ops::PackedKind::kNf4, 64, true};
        pack_linears(*model, packing);
        round_linears(*model, {});
      }),
      HasSubstr("model.layers.1.mlp.up_proj are quantized"));
  const model::ModelConfig experts = model::parse_model_config(
      R"({"model_type": "mixtral", "vocab_size": 31, "hidden_size": 16, "intermediate_size": 8,
          "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4,
          "num_local_experts": 2})",
      "test");
  EXPECT_THAT(
      problem_of([&] { linears_of(experts, {.scaling = model::Float8::Scaling::kTensor}); }),
      HasSubstr("precision.fp8=row"));
  // 4 linears of attention and 3 of each expert; the router is excluded.
  EXPECT_EQ(linears_of(experts, {.scaling = model::Float8::Scaling::kRow}).size(), 10);
}

}  // namespace float8_test
}  // namespace lockstep::nn
