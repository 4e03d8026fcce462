// Tests of deferred weight gradients, for every kind of linear kernel.
#include "parallel/autograd/deferred.h"

#include <map>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "nn/decomposed.h"
#include "parallel/products.h"

namespace lockstep::parallel {
namespace deferred_test {

constexpr int64_t kIn = 7, kOut = 5;

// By name: gradients of "x" and of parameters, and the output "y".
using Gradients = std::map<std::string, Tensor>;

std::shared_ptr<nn::LinearKernel> make_dense() {
  auto product = std::make_shared<nn::DenseLinearKernel>(nn::WeightLayout::kOutIn);
  product->visit_parameters([](const nn::Parameter& parameter) {
    parameter.value = (parameter.in >= 0 ? torch::randn({kOut, kIn}) : torch::randn({kOut}))
                          .set_requires_grad(true);
  });
  return product;
}

/// An adapter with input dropout.
template <class Adapted>
std::shared_ptr<nn::LinearKernel> make_adapted(double probability) {
  auto dropout = std::make_shared<nn::Dropout>();
  dropout->probability = probability;
  auto product = std::make_shared<Adapted>(make_dense(), 1.5, dropout);
  product->visit_parameters([](const nn::Parameter& parameter) {
    if (!parameter.value.defined()) {
      parameter.value = (parameter.name == "lora_magnitude_vector" ? torch::rand({kOut})
                         : parameter.in >= 0                       ? torch::randn({2, kIn})
                                                                   : torch::randn({kOut, 2}))
                            .set_requires_grad(true);
    }
  });
  return product;
}

/// Context of a training pass over three rows.
const nn::ForwardContext& context() {
  static const model::ModelConfig config =
      model::parse_model_config("{\"model_type\": \"gpt2\"}", "test");
  static const nn::ForwardContext result = [] {
    nn::ForwardInputs inputs;
    inputs.ids = torch::zeros({3, 4}, at::kLong);
    inputs.samples = torch::arange(3);
    inputs.training = true;
    return nn::ForwardContext(config, inputs);
  }();
  return result;
}

std::shared_ptr<nn::LinearKernel> make_packed() {
  const ops::PackedMatrix matrix = ops::quantize(torch::randn({kOut, kIn}), {});
  const ops::PackedPart part = ops::PackedPart::whole(matrix.format, kOut, kIn);
  return std::make_shared<nn::PackedLinearKernel>(part, ops::part_bytes(matrix, part), Tensor());
}

/// Returns the gradients of a fixed loss through `linear`.
Gradients run(nn::Linear& linear, DeferredQueue* queue, size_t* deferred = nullptr) {
  torch::manual_seed(2);
  const Tensor x = torch::randn({3, 4, kIn}).requires_grad_();
  const Tensor y = linear.forward(x, context());
  (y * torch::randn(y.sizes())).sum().backward();
  if (queue != nullptr) {
    DeferredWork work = queue->take();
    *deferred = work.size();
    for (const auto& make : work) {
      make();
    }
  }
  Gradients gradients{{"y", y.detach()}, {"x", x.grad()}};
  linear.visit_parameters([&](const nn::Parameter& parameter) {
    if (parameter.value.defined() && parameter.value.requires_grad()) {
      gradients[parameter.name] = parameter.value.grad().clone();
      parameter.value.mutable_grad().reset();
    }
  });
  return gradients;
}

TEST(Deferral, CallsTheProductThatStandsThere) {
  torch::manual_seed(1);
  for (const auto& product :
       {make_dense(),
        make_packed(),
        make_adapted<nn::LowRankLinearKernel>(0.25),
        make_adapted<nn::DecomposedLinearKernel>(0.25),
        make_adapted<nn::DecomposedLinearKernel>(0)}) {
    nn::Linear linear(product);
    const Gradients wanted = run(linear, nullptr);
    const auto queue = std::make_shared<DeferredQueue>();
    defer_weight_gradients(linear, queue);
    size_t deferred = 0;
    const Gradients found = run(linear, queue.get(), &deferred);
    EXPECT_EQ(deferred, product->is_trained() ? 1U : 0U);
    ASSERT_EQ(found.size(), wanted.size());
    for (const auto& [name, value] : wanted) {
      EXPECT_TRUE(torch::allclose(found.at(name), value, 1e-5, 1e-5)) << name;
    }
  }
}

/// Several calls per pass occur in experts that process tokens in halves.
TEST(Deferral, CallsOfOnePassGiveOneGradient) {
  torch::manual_seed(1);
  nn::Linear linear(make_dense());
  Tensor weight;
  linear.product()->visit_parameters([&](const nn::Parameter& parameter) {
    if (parameter.name == "weight") {
      weight = parameter.value;
    }
  });
  const std::vector<Tensor> parts{
      torch::randn({3, kIn}).requires_grad_(),
      torch::randn({0, kIn}).requires_grad_(),
      torch::randn({2, kIn}).requires_grad_()};
  linear.forward(at::cat(parts), context()).square().sum().backward();
  const Tensor wanted = weight.grad().clone();
  weight.mutable_grad().reset();
  const auto queue = std::make_shared<DeferredQueue>();
  defer_weight_gradients(linear, queue);
  Tensor sum = torch::zeros({});
  for (const Tensor& part : parts) {
    sum = sum + linear.forward(part, context()).square().sum();
  }
  sum.backward();
  int hooks = 0;
  weight.register_hook([&](const Tensor& /*gradient*/) { ++hooks; });
  const DeferredWork work = queue->take();
  ASSERT_EQ(work.size(), 1U);
  work.front()();
  EXPECT_EQ(hooks, 1);
  EXPECT_TRUE(torch::allclose(weight.grad(), wanted, 1e-5, 1e-5));
}

TEST(Deferral, TheLastQueueGetsTheWork) {
  nn::Linear linear(make_dense());
  const auto first = std::make_shared<DeferredQueue>(), last = std::make_shared<DeferredQueue>();
  defer_weight_gradients(linear, first);
  defer_weight_gradients(linear, last);
  size_t deferred = 0;
  run(linear, last.get(), &deferred);
  EXPECT_EQ(deferred, 1U);
  EXPECT_TRUE(first->take().empty());
}

TEST(Deferral, WhatIsNotTrainedKeepsNoInput) {
  for (const bool is_trained : {false, true}) {
    nn::Linear linear(is_trained ? make_dense() : make_packed());
    defer_weight_gradients(linear, std::make_shared<DeferredQueue>());
    Tensor x = torch::randn({3, kIn}).requires_grad_();
    const Tensor read = x * 2;
    const Tensor y = linear.forward(read, context());
    EXPECT_EQ(read.use_count() + read.storage().use_count() > 2, is_trained);
  }
}

}  // namespace deferred_test
}  // namespace lockstep::parallel
