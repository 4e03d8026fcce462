// AdamW on flat buffers.
#include "ops/adamw.h"

#include <cmath>
#include <limits>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::ops {
namespace adamw_test {

enum class Types { kFloat, kFloatWithBfloat16Gradient, kBfloat16, kBfloat16WithFloatGradient };

AdamWBuffers make_buffers(int64_t count, Types types, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const bool low = types == Types::kBfloat16 || types == Types::kBfloat16WithFloatGradient;
  const bool low_gradient = types == Types::kBfloat16 || types == Types::kFloatWithBfloat16Gradient;
  AdamWBuffers buffers;
  const at::Tensor weight = at::randn({count}, generator);
  buffers.parameter = low ? weight.to(at::kBFloat16) : weight;
  buffers.master = low ? weight : at::Tensor();
  buffers.gradient =
      at::randn({count}, generator).to(low_gradient ? at::kBFloat16 : at::kFloat).mul_(0.1);
  buffers.exp_avg = at::randn({count}, generator).mul_(0.01);
  buffers.exp_avg_sq = at::rand({count}, generator).mul_(0.01);
  return buffers;
}

AdamWBuffers clone(const AdamWBuffers& buffers) {
  const auto copy = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.clone() : at::Tensor();
  };
  return {
      copy(buffers.parameter),
      copy(buffers.master),
      copy(buffers.gradient),
      copy(buffers.exp_avg),
      copy(buffers.exp_avg_sq)};
}

const at::Tensor& weight_of(const AdamWBuffers& buffers) {
  return buffers.master.defined() ? buffers.master : buffers.parameter;
}

void expect_near(const at::Tensor& ours, const at::Tensor& theirs, const std::string& what) {
  if (ours.numel() > 0) {
    const double error = (ours - theirs).abs().max().item<double>();
    const double scale = theirs.abs().max().item<double>();
    EXPECT_LE(error, 2e-6 * scale) << what;
  }
}

TEST(AdamW, EqualsTheReferenceOverSizesAndTypes) {
  for (const int64_t count : {0, 1, 7, 8, 9, 63, 1000, 32769, 100003}) {
    for (const Types types :
         {Types::kFloat,
          Types::kFloatWithBfloat16Gradient,
          Types::kBfloat16,
          Types::kBfloat16WithFloatGradient}) {
      const AdamWBuffers ours = make_buffers(count, types, 3);
      const AdamWBuffers theirs = clone(ours);
      for (int64_t step = 1; step <= 3; ++step) {
        const AdamWStep numbers{
            .learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.25, .step = step};
        adamw_step(ours, numbers);
        adamw_step_reference(theirs, numbers);
      }
      const std::string what = std::to_string(count);
      expect_near(weight_of(ours), weight_of(theirs), what);
      expect_near(ours.exp_avg, theirs.exp_avg, what);
      expect_near(ours.exp_avg_sq, theirs.exp_avg_sq, what);
      EXPECT_TRUE(at::equal(ours.gradient, theirs.gradient));
      EXPECT_TRUE(at::equal(ours.parameter, weight_of(ours).to(ours.parameter.scalar_type())));
    }
  }
}

TEST(AdamW, NumbersInATensorGiveTheSameBits) {
  for (const Types types : {Types::kFloat, Types::kBfloat16, Types::kBfloat16WithFloatGradient}) {
    for (const int64_t count : {0, 7, 32769}) {
      const AdamWBuffers one = make_buffers(count, types, 5), other = clone(one);
      for (int64_t step = 1; step <= 3; ++step) {
        AdamWStep numbers{.learning_rate = 1e-2, .weight_decay = 0.1, .step = step};
        const at::Tensor written = adamw_numbers(numbers);
        numbers.gradient_scale = 0.25;
        adamw_step(one, numbers);
        written[0].fill_(0.25);  // a step writes its clipping factor in the same way
        adamw_step_by(other, written);
      }
      EXPECT_TRUE(at::equal(one.parameter, other.parameter)) << count;
      EXPECT_TRUE(at::equal(one.exp_avg, other.exp_avg));
      EXPECT_TRUE(at::equal(one.exp_avg_sq, other.exp_avg_sq));
    }
  }
  const AdamWBuffers buffers = make_buffers(3, Types::kFloat, 5);
  EXPECT_THROW(adamw_step_by(buffers, at::zeros({kAdamWNumbers - 1})), Error);
  EXPECT_THROW(adamw_numbers({.step = 0}), Error);
}

TEST(AdamW, EqualsTorchsFusedKernel) {
  const AdamWBuffers ours = make_buffers(1001, Types::kFloat, 4);
  const AdamWBuffers theirs = clone(ours);
  for (int64_t step = 1; step <= 20; ++step) {
    adamw_step(
        ours,
        {.learning_rate = 3e-3,
         .beta1 = 0.8,
         .beta2 = 0.95,
         .epsilon = 1e-6,
         .weight_decay = 0.2,
         .step = step});
    at::_fused_adamw_(
        {theirs.parameter},
        {theirs.gradient},
        {theirs.exp_avg},
        {theirs.exp_avg_sq},
        {},
        {at::full({}, static_cast<double>(step), at::kFloat)},
        3e-3,
        0.8,
        0.95,
        0.2,
        1e-6,
        /*amsgrad=*/false,
        /*maximize=*/false);
  }
  expect_near(ours.parameter, theirs.parameter, "weights");
  expect_near(ours.exp_avg, theirs.exp_avg, "exp_avg");
  expect_near(ours.exp_avg_sq, theirs.exp_avg_sq, "exp_avg_sq");
}

TEST(AdamW, HasTheSameBitsForAnySplitAndNumberOfThreads) {
  const int64_t count = 100003;
  const AdamWBuffers whole = make_buffers(count, Types::kBfloat16, 5);
  const AdamWBuffers parts = clone(whole);
  const AdamWStep step{.learning_rate = 1e-2, .weight_decay = 0.1, .step = 7};
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  adamw_step(whole, step);
  at::set_num_threads(1);
  for (int64_t begin = 0, size = 1; begin < count; begin += size, size = 3 * size + 2) {
    const int64_t length = std::min(size, count - begin);
    const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, begin, length); };
    adamw_step(
        {part(parts.parameter),
         part(parts.master),
         part(parts.gradient),
         part(parts.exp_avg),
         part(parts.exp_avg_sq)},
        step);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(whole.master, parts.master));
  EXPECT_TRUE(at::equal(whole.parameter, parts.parameter));
  EXPECT_TRUE(at::equal(whole.exp_avg, parts.exp_avg));
  EXPECT_TRUE(at::equal(whole.exp_avg_sq, parts.exp_avg_sq));
}

TEST(AdamW, RoundsEachOperationAsPlainCodeDoes) {
  // The same operations one by one, without vectors or fused multiply-add, have equal bits on every
  // machine.
  const AdamWBuffers buffers = make_buffers(1003, Types::kFloat, 6);
  const AdamWBuffers before = clone(buffers);
  const AdamWStep step{
      .learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.3, .step = 2};
  adamw_step(buffers, step);
  const auto keep = static_cast<float>(1.0 - 1e-2 * 0.1);
  const auto rate = static_cast<float>(1e-2 / (1.0 - std::pow(0.9, 2.0)));
  const auto root_factor = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(0.999, 2.0)));
  for (int64_t i = 0; i < 1003; ++i) {
    const auto at_i = [&](const at::Tensor& tensor) { return tensor.data_ptr<float>()[i]; };
    volatile float g = at_i(before.gradient) * 0.3F;
    volatile float m_old = 0.9F * at_i(before.exp_avg);
    volatile float m_new = static_cast<float>(1.0 - 0.9) * g;
    volatile float m = m_old + m_new;
    volatile float v_old = 0.999F * at_i(before.exp_avg_sq);
    volatile float square = g * g;
    volatile float v_new = static_cast<float>(1.0 - 0.999) * square;
    volatile float v = v_old + v_new;
    volatile float root = std::sqrt(v) * root_factor;
    volatile float below = root + 1e-8F;
    volatile float kept = keep * at_i(before.parameter);
    volatile float quotient = m / below;
    volatile float move = rate * quotient;
    ASSERT_EQ(at_i(buffers.parameter), kept - move) << i;
    ASSERT_EQ(at_i(buffers.exp_avg), m) << i;
    ASSERT_EQ(at_i(buffers.exp_avg_sq), v) << i;
  }
}

TEST(AdamW, LetsNanThrough) {
  const AdamWBuffers buffers = make_buffers(40, Types::kBfloat16, 7);
  buffers.gradient[33] = std::numeric_limits<float>::quiet_NaN();
  adamw_step(buffers, {});
  EXPECT_TRUE(std::isnan(buffers.parameter[33].item<float>()));
  EXPECT_EQ(buffers.parameter.isnan().sum().item<int64_t>(), 1);
}

TEST(AdamW, RefusesBuffersThatDoNotGoTogether) {
  const auto refused = [](auto change, int64_t step = 1) {
    AdamWBuffers buffers = make_buffers(8, Types::kBfloat16, 8);
    change(buffers);
    EXPECT_THROW(adamw_step(buffers, {.step = step}), Error);
  };
  refused([](AdamWBuffers& b) { b.parameter = at::Tensor(); });
  refused([](AdamWBuffers& b) { b.gradient = at::Tensor(); });
  refused([](AdamWBuffers& b) { b.gradient = at::ones({7}); });
  refused([](AdamWBuffers& b) { b.gradient = at::ones({8}, at::kDouble); });
  refused([](AdamWBuffers& b) { b.exp_avg = at::ones({8}, at::kBFloat16); });
  refused([](AdamWBuffers& b) { b.exp_avg = at::ones({16}).slice(0, 0, 16, 2); });
  refused([](AdamWBuffers& b) { b.master = at::Tensor(); });
  refused([](AdamWBuffers& b) { b.parameter = at::ones({8}); });
  refused([](AdamWBuffers&) {}, 0);
}

}  // namespace adamw_test
}  // namespace lockstep::ops
