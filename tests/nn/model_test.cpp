// Models: structure, gradients, dropout, stages, slots, and training without the trainer.
#include <cmath>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "nn/devices.h"
#include "nn/generate.h"
#include "nn/initialize.h"
#include "nn/key_value_cache.h"
#include "nn/language_model.h"
#include "nn/testing.h"
#include "numbers.h"
#include "ops/token_loss.h"

namespace lockstep::nn {
namespace model_test {

using testing::HasSubstr;

class EveryFamily : public testing::TestWithParam<const char*> {
 protected:
  model::ModelConfig config() const { return model::parse_model_config(GetParam(), "test"); }
};
std::string family_of(const testing::TestParamInfo<const char*>& info) {
  return std::string(model::family_name(model::parse_model_config(info.param, "test").family));
}

/// Encoder-only models, or all others.
std::vector<const char*> models_that(bool are_encoders) {
  std::vector<const char*> result;
  for (const char* const json : kSmallModels) {
    if (model::parse_model_config(json, "test").bidirectional == are_encoders) {
      result.push_back(json);
    }
  }
  return result;
}

class EveryDecoder : public EveryFamily {};
class EveryEncoder : public EveryFamily {};
INSTANTIATE_TEST_SUITE_P(Nn, EveryFamily, testing::ValuesIn(kSmallModels), family_of);
INSTANTIATE_TEST_SUITE_P(Nn, EveryDecoder, testing::ValuesIn(models_that(false)), family_of);
INSTANTIATE_TEST_SUITE_P(Nn, EveryEncoder, testing::ValuesIn(models_that(true)), family_of);

TEST_P(EveryFamily, HasTheParametersOfItsDescription) {
  const auto model = make_model(config(), at::kBFloat16, at::kCPU);
  const auto specs = model::parameters_of(config());
  size_t i = 0;
  model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    ASSERT_LT(i, specs.size());
    EXPECT_EQ(name, specs[i].name);
    EXPECT_EQ(parameter.sizes(), at::IntArrayRef(specs[i].shape));
    EXPECT_EQ(parameter.scalar_type(), specs[i].is_float32 ? at::kFloat : at::kBFloat16);
    EXPECT_EQ(parameter.requires_grad(), specs[i].learns);
    ++i;
  });
  EXPECT_EQ(i, specs.size());
  std::vector<std::string> in_units;
  const auto units = model->units();
  EXPECT_EQ(static_cast<int64_t>(units.size()), config().layers + 2);
  for (const auto& unit : units) {
    in_units.insert(in_units.end(), unit.begin(), unit.end());
  }
  EXPECT_EQ(in_units.size(), specs.size());
  EXPECT_EQ(in_units.front(), specs.front().name);
  EXPECT_EQ(in_units.back(), specs.back().name);
}

TEST_P(EveryFamily, LossIsThatOfItsLogits) {
  const auto model = small_model(config());
  const ForwardInputs inputs = small_inputs(config(), 3, 9);
  const Tensor logits = model->logits(inputs);
  EXPECT_EQ(logits.sizes(), (at::IntArrayRef{3, 9, config().vocab_size}));
  const Tensor wanted = at::cross_entropy_loss(
      logits.flatten(0, 1), inputs.targets.tokens.flatten(), {}, at::Reduction::Sum);
  const Tensor loss = model->loss(inputs);
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-4);
  EXPECT_LT((model->last_logits(inputs) - logits.select(1, 8)).abs().max().item<double>(), 1e-5);
  const Scores scores = model->scores(inputs);
  EXPECT_NEAR(-scores.log_likelihoods.sum().item<double>(), wanted.item<double>(), 1e-4);
  const Tensor right = logits.argmax(2).eq(inputs.targets.tokens);
  EXPECT_TRUE(scores.likeliest.equal(right));
}

TEST_P(EveryFamily, EveryParameterGetsAGradientInBothTypes) {
  // In bfloat16 a token may choose the other of two nearly equal experts, so single gradients are
  // not comparable; all gradients together are.
  const bool is_mixture = config().experts.count > 0;
  double wrong = 0, whole = 0;
  std::map<std::string, Tensor> exact;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto model = small_model(config(), type);
    model->loss(small_inputs(config(), 2, 11)).backward();
    model->visit_parameters([&](const std::string& name, Tensor& parameter) {
      ASSERT_EQ(parameter.grad().defined(), parameter.requires_grad()) << name;
      if (!parameter.requires_grad()) {
        return;
      }
      const Tensor gradient = parameter.grad().to(at::kDouble);
      EXPECT_TRUE(at::isfinite(gradient).all().item<bool>()) << name;
      if (type == at::kFloat) {
        exact[name] = gradient;
        return;
      }
      // The key bias shifts all scores of a query equally: its gradient is rounding noise.
      if (name.ends_with("k_proj.bias")) {
        return;
      }
      const double error = (gradient - exact[name]).square().sum().item<double>();
      const double wanted = exact[name].square().sum().item<double>();
      wrong += error;
      whole += wanted;
      EXPECT_TRUE(is_mixture || error < 0.01 * wanted) << name << ": " << std::sqrt(error / wanted);
    });
  }
  EXPECT_LT(std::sqrt(wrong / whole), is_mixture ? 0.3 : 0.1);
}

TEST_P(EveryDecoder, ATokenDoesNotSeeTheFuture) {
  const auto model = small_model(config());
  ForwardInputs inputs = small_inputs(config(), 1, 10);
  const Tensor before = model->logits(inputs).detach();
  inputs.ids = inputs.ids.clone();
  inputs.ids[0][6] = (inputs.ids[0][6] + 1) % config().vocab_size;
  const Tensor change = (model->logits(inputs) - before).abs().amax(2)[0];
  EXPECT_LT(change.narrow(0, 0, 6).max().item<double>(), 1e-6);
  EXPECT_GT(change[6].item<double>(), 1e-4);
}

TEST_P(EveryEncoder, ATokenSeesAllOfItsDocumentAndNoPadding) {
  const auto model = small_model(config());
  const ForwardInputs alone = small_inputs(config(), 1, 6);
  const Tensor before = model->logits(alone).detach();
  ForwardInputs padded = alone;
  padded.ids = at::constant_pad_nd(alone.ids, {0, 3}, 1);
  padded.targets = {};
  padded.document_starts = at::tensor({0, 0, 0, 0, 0, 0, 6, 6, 6}, at::kLong).view({1, 9});
  padded.positions = at::arange(9) - padded.document_starts;
  const auto change = [&] {
    return (model->logits(padded).narrow(1, 0, 6) - before).abs().amax(2)[0];
  };
  EXPECT_LT(change().max().item<double>(), 1e-5);
  padded.ids[0][7] = 2;  // in the padding
  EXPECT_LT(change().max().item<double>(), 1e-5);
  padded.ids[0][5] = (padded.ids[0][5] + 1) % config().vocab_size;
  EXPECT_GT(change().min().item<double>(), 1e-4);
}

TEST_P(EveryEncoder, ContinuesNoText) {
  const auto model = small_model(config());
  EXPECT_THROW(generate(*model, {3, 1, 2}, {.max_new_tokens = 2}), Error);
}

/// The cache accepts chunks of any length, including single tokens, and generation uses it.
TEST_P(EveryDecoder, GeneratesWithTheCacheAsWithout) {
  const auto model = small_model(config());
  const at::NoGradGuard no_gradient;
  const ForwardInputs whole = small_inputs(config(), 2, 30);
  const Tensor wanted = model->logits(whole);
  KeyValueCache cache(config());
  int64_t first = 0;
  for (const int64_t length : {4, 1, 1, 9, 2, 13}) {
    ForwardInputs piece = whole;
    piece.targets = {};
    piece.ids = whole.ids.narrow(1, first, length);
    piece.cache = &cache;
    const Tensor got = model->logits(piece);
    EXPECT_LT((got - wanted.narrow(1, first, length)).abs().max().item<double>(), 1e-4) << first;
    first += length;
  }
  const auto generated = generate(*model, {3, 1, 2}, {.max_new_tokens = 9});
  EXPECT_EQ(generated.ids.size(), 9U);
}

TEST_P(EveryFamily, StagesGiveTheWholesLossAndGradients) {
  const auto whole = small_model(config());
  const ForwardInputs inputs = small_inputs(config(), 2, 8);
  const Tensor wanted = whole->loss(inputs);
  wanted.backward();
  std::map<std::string, Tensor> values, gradients;
  whole->visit_parameters([&](const std::string& name, Tensor& parameter) {
    values[name] = parameter.detach();
    if (parameter.requires_grad()) {
      gradients[name] = parameter.grad();
    }
  });
  const auto first = make_model(config(), at::kFloat, at::kCPU, {0, 1, true, false});
  const auto last = make_model(config(), at::kFloat, at::kCPU, {1, -1, false, true});
  for (const auto& stage : {first.get(), last.get()}) {
    stage->visit_parameters([&](const std::string& name, Tensor& parameter) {
      parameter.detach().copy_(values.at(name));
    });
  }
  const Context context = first->make_context(inputs), other = last->make_context(inputs);
  const auto loss_of = [&](const LanguageModel& stage, const Tensors& states) {
    return stage.run_head(states, other, [&](const Tensor& hidden, const Tensor& vocabulary) {
      return Tensors{stage.head->loss(hidden, vocabulary, inputs.targets)};
    });
  };
  const Tensors states =
      last->forward_blocks(first->forward_blocks(first->embed(context), context), other);
  const Tensor loss = loss_of(*last, states).front();
  EXPECT_NEAR(loss.item<double>(), wanted.item<double>(), 1e-5);
  loss.backward();
  std::map<std::string, Tensor> sums;  // a tied weight is on both stages
  for (const auto& stage : {first.get(), last.get()}) {
    stage->visit_parameters([&](const std::string& name, Tensor& parameter) {
      if (parameter.requires_grad()) {
        sums[name] = sums.contains(name) ? sums[name] + parameter.grad() : parameter.grad();
      }
    });
  }
  numbers::expect_gradients(sums, gradients, "two stages");
  EXPECT_THROW(loss_of(*first, states), Error);
  EXPECT_THROW(last->embed(other), Error);
  EXPECT_EQ(last->units().size(), static_cast<size_t>(config().layers));
}

TEST_P(EveryFamily, LearnsAloneToCopy) {
  // A model trains without ranks or a trainer: a model, a loss, a few steps.
  auto description = config();
  const auto model = small_model(description);
  const int64_t half = 6;
  double first = 0, last = 0;
  std::map<std::string, std::pair<Tensor, Tensor>> moments;
  for (int64_t step = 1; step <= 60; ++step) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step));
    const Tensor part = at::empty({16, half}, at::kLong).random_(1, 9, generator);
    ForwardInputs inputs;
    inputs.ids = at::cat({part, part}, 1);  // the second half repeats the first
    Tensor labels = inputs.ids.clone();
    labels.narrow(1, 0, half).fill_(-100);
    inputs.targets = predicted(description, labels);
    if (description.is_encoder_decoder()) {
      inputs.source = part;
    } else if (description.bidirectional) {
      inputs.ids.narrow(1, half, half).fill_(9);  // the tokens to predict are masked
    }
    const Tensor loss = model->loss(inputs) / (16 * half);
    loss.backward();
    first = step == 1 ? loss.item<double>() : first;
    last = loss.item<double>();
    const at::NoGradGuard no_gradient;
    model->visit_parameters([&](const std::string& name, Tensor& parameter) {
      if (!parameter.requires_grad()) {
        return;
      }
      auto& [mean, square] =
          moments.try_emplace(name, at::zeros_like(parameter), at::zeros_like(parameter))
              .first->second;
      mean.mul_(0.9).add_(parameter.grad(), 0.1);
      square.mul_(0.95).addcmul_(parameter.grad(), parameter.grad(), 0.05);
      const double c1 = 1 - std::pow(0.9, step), c2 = 1 - std::pow(0.95, step);
      parameter.addcdiv_(mean, (square / c2).sqrt() + 1e-8, -0.01 / c1);
      parameter.mutable_grad().zero_();
    });
  }
  EXPECT_GT(first, 2.0);
  EXPECT_LT(last, 0.6 * first);
}

TEST(Dropouts, AreTheSameForASampleWhereverItStands) {
  auto config = model::parse_model_config(kSmallModels[0], "test");
  config.attention_dropout = config.residual_dropout = config.embedding_dropout = 0.2;
  const auto model = small_model(config);
  ForwardInputs inputs = small_inputs(config, 4, 7);
  inputs.training = true;
  inputs.samples = at::tensor({10, 11, 12, 13}, at::kLong);
  const Tensor all = model->logits(inputs).detach();
  ForwardInputs one = inputs;
  one.ids = inputs.ids.narrow(0, 2, 1);
  one.targets = {};
  one.samples = at::tensor({12}, at::kLong);
  EXPECT_LT((model->logits(one)[0] - all[2]).abs().max().item<double>(), 1e-5);
  one.samples = at::tensor({13}, at::kLong);
  EXPECT_GT((model->logits(one)[0] - all[2]).abs().max().item<double>(), 1e-2);
  one.samples = at::tensor({12}, at::kLong);
  one.step = 1;
  EXPECT_GT((model->logits(one)[0] - all[2]).abs().max().item<double>(), 1e-2);
  one.step = 0;
  one.seed = 1;
  EXPECT_GT((model->logits(one)[0] - all[2]).abs().max().item<double>(), 1e-2);
  one.training = false;
  const Tensor still = model->logits(one).detach();
  one.seed = 2;
  EXPECT_TRUE(at::equal(model->logits(one), still));
  one.training = true;
  one.samples = Tensor();
  EXPECT_THROW(model->logits(one), Error);
}

TEST(Dropouts, GradientsWithDropoutAreThoseOfFiniteDifferences) {
  auto config = model::parse_model_config(kSmallModels[0], "test");
  config.attention_dropout = config.residual_dropout = config.embedding_dropout = 0.3;
  const auto model = small_model(config, at::kDouble);
  ForwardInputs inputs = small_inputs(config, 2, 6);
  inputs.training = true;
  inputs.samples = at::arange(2, at::kLong);
  model->loss(inputs).backward();
  model->visit_parameters([&](const std::string& name, Tensor& parameter) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
    const Tensor direction = at::empty_like(parameter.detach()).normal_(0, 1, generator);
    const double wanted = (parameter.grad() * direction).sum().item<double>();
    const auto loss_at = [&](double distance) {
      const at::NoGradGuard no_gradient;
      parameter.add_(direction, distance);
      const double value = model->loss(inputs).item<double>();
      parameter.add_(direction, -distance);
      return value;
    };
    const double measured = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
    EXPECT_NEAR(measured, wanted, 1e-5 * std::max(1.0, std::abs(wanted))) << name;
  });
}

TEST(Slots, EveryRoleIsVisitedAndASwapTakesEffect) {
  struct Doubled final : Linear {
    explicit Doubled(const Linear& other) : Linear(other) {}
    Tensor forward(const Tensor& x, const ForwardContext& context) const override {
      return 2 * Linear::forward(x, context);
    }
  };
  std::multiset<std::string> seen;
  const auto config = model::parse_model_config(kSmallModels[0], "test");
  const auto model = small_model(config);
  const ForwardInputs inputs = small_inputs(config, 1, 5);
  const Tensor before = model->logits(inputs).detach();
  model->visit_slots([&](const SlotName& name, const Slot& slot) {
    seen.insert(name.role);
    if (name.role == "mlp_down") {
      auto& linear = *slot.as<Linear>();
      linear = std::make_shared<Doubled>(*linear);
    }
    EXPECT_EQ(slot.as<Norm>() != nullptr, name.role.ends_with("norm")) << name.role;
    EXPECT_EQ(slot.as<RegionBoundary>() != nullptr, name.role.ends_with("input")) << name.role;
    const bool has_none = name.role.ends_with("dropout") || name.role.ends_with("noise") ||
                          name.role.ends_with("input");
    EXPECT_EQ(slot.layer() == nullptr, has_none) << name.role;
  });
  EXPECT_GT((model->logits(inputs) - before).abs().max().item<double>(), 1e-3);
  const std::multiset<std::string> of_block = {
      "attention_norm",
      "attention_input",
      "query_key_value",
      "attention",
      "attention_out",
      "attention_dropout",
      "mlp_norm",
      "mlp_input",
      "mlp_up",
      "mlp_down",
      "mlp_dropout"};
  std::multiset<std::string> wanted = {
      "tokens",
      "embedding_noise",
      "positions",
      "embedding_dropout",
      "final_norm",
      "head_input",
      "head"};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    wanted.insert(of_block.begin(), of_block.end());
  }
  EXPECT_EQ(seen, wanted);
}

TEST(Slots, EveryDropoutHasASiteOfItsOwn) {
  for (const char* json : kSmallModels) {
    const auto model = small_model(model::parse_model_config(json, "test"));
    std::set<int64_t> sites;
    const auto take = [&](const SlotName& name, int64_t site) {
      EXPECT_EQ(site, dropout_site(name.role, name.layer)) << name.role;
      EXPECT_TRUE(sites.insert(site).second) << name.role << " of layer " << name.layer;
    };
    model->visit_slots([&](const SlotName& name, const Slot& slot) {
      if (auto* noise = slot.as<EmbeddingNoise>()) {
        take(name, (*noise)->site);
      } else if (auto* dropout = slot.as<Dropout>()) {
        take(name, (*dropout)->site);
      } else if (auto* attention = slot.as<Attention>()) {
        take(name, (*attention)->site);
      } else if (auto* biased = slot.as<BiasedAttention>()) {
        take(name, (*biased)->site);
      }
    });
    EXPECT_GE(sites.size(), 7U);
  }
}

TEST(Slots, TheInnerProductMayBeReplaced) {
  const auto config = model::parse_model_config(kSmallModels[0], "test");
  const auto model = small_model(config);
  const ForwardInputs inputs = small_inputs(config, 1, 5);
  const Tensor before = model->logits(inputs).detach();
  int64_t calls = 0;
  struct Plain final : LinearKernel {
    explicit Plain(int64_t* calls) : calls(calls) {}
    int64_t* calls;
    Tensor weight, bias;
    Tensor forward(const Tensor& x, const Tensor&) const override {
      ++*calls;
      return at::matmul(x, weight) + bias;
    }
    Tensor input_gradient(const Tensor&, const Tensor&) const override { return {}; }
    void accumulate_weight_gradients(const Tensor&, const Tensor&, const Tensor&) const override {}
    bool is_trained() const override { return true; }
    void visit_parameters(const ParameterFunction&) override {}
  };
  model->visit_slots(each<Linear>([&](const SlotName&, std::shared_ptr<Linear>& slot) {
    auto plain = std::make_shared<Plain>(&calls);
    slot->visit_parameters([&](const Parameter& parameter) {
      EXPECT_EQ(
          parameter.out, parameter.name == "weight" ? 1 : 0);  // dims in the checkpoint's layout
      EXPECT_EQ(parameter.in, parameter.name == "weight" ? 0 : -1);
      (parameter.name == "weight" ? plain->weight : plain->bias) = parameter.value;
    });
    slot->product() = plain;
  }));
  EXPECT_LT((model->logits(inputs) - before).abs().max().item<double>(), 1e-5);
  EXPECT_EQ(calls, 4 * config.layers);
}

TEST(Units, TheRunnerSeesEachInOrderAndMayRunABodyAgain) {
  const auto config = model::parse_model_config(kSmallModels[1], "test");
  const auto model = small_model(config);
  const Tensor wanted = model->loss(small_inputs(config, 1, 5)).detach();
  std::vector<int64_t> units;
  std::vector<LanguageModel::UnitBody> bodies;
  Tensors last_input;
  model->around_unit = [&](int64_t unit, const Tensors& x, const LanguageModel::UnitBody& body) {
    units.push_back(unit);
    bodies.push_back(body);
    last_input = x;
    return body(x);
  };
  Tensor loss;
  {
    const ForwardInputs inputs = small_inputs(config, 1, 5);
    loss = model->loss(inputs);
  }
  EXPECT_EQ(units, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(
      bodies.back()(last_input).front().item<double>(),
      wanted.item<double>());  // after all other objects have been destroyed
}

TEST(Positions, DistancesShareBucketsAsInTransformers) {
  // Reference values from transformers 5.23.
  const auto buckets = [](const std::vector<int64_t>& distances, Visibility visibility) {
    return relative_position_buckets(at::tensor(distances, at::kLong), visibility, {32, 128});
  };
  const std::vector<int64_t> distances = {-200, -128, -127, -64, -40, -17, -16, -9,
                                          -8,   -7,   -1,   0,   1,   7,   8,   9,
                                          15,   16,   23,   64,  127, 128, 1000};
  EXPECT_TRUE(at::equal(
      buckets(distances, Visibility::kBoth),
      at::tensor(
          {15, 15, 15, 14, 12, 10, 10, 8, 8, 7, 1, 0, 17, 23, 24, 24, 25, 26, 27, 30, 31, 31, 31},
          at::kLong)));
  EXPECT_TRUE(at::equal(
      buckets(distances, Visibility::kCausal),
      at::tensor(
          {31, 31, 31, 26, 23, 16, 16, 9, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
          at::kLong)));
}

TEST(EncoderDecoder, PaddingOfTheSourceChangesNothing) {
  const auto config = model::parse_model_config(kSmallModels[4], "test");
  const auto model = small_model(config);
  ForwardInputs inputs = small_inputs(config, 1, 6);
  inputs.source_mask = Tensor();
  const Tensor wanted = model->logits(inputs);
  const Tensor source = inputs.source;
  inputs.source = at::constant_pad_nd(source, {0, 3}, 5);
  EXPECT_GT((model->logits(inputs) - wanted).abs().max().item<double>(), 1e-3);
  inputs.source_mask = at::constant_pad_nd(at::ones_like(source, at::kBool), {0, 3}, 0);
  EXPECT_LT((model->logits(inputs) - wanted).abs().max().item<double>(), 1e-4);
  // A row without any visible token must not produce NaN elsewhere.
  inputs.source_mask.zero_();
  EXPECT_TRUE(at::isfinite(model->logits(inputs)).all().item<bool>());
  inputs.source = Tensor();
  EXPECT_THROW(model->logits(inputs), Error);
}

TEST(Positions, GivenOnesAreThoseCounted) {
  for (const char* text : {kSmallModels[0], kSmallModels[2]}) {
    const auto config = model::parse_model_config(text, "test");
    const auto model = small_model(config);
    ForwardInputs inputs = small_inputs(config, 2, 6);
    const Tensor wanted = model->logits(inputs);
    inputs.positions = at::arange(6).expand({2, 6});
    EXPECT_LT((model->logits(inputs) - wanted).abs().max().item<double>(), 1e-6);
    inputs.positions = at::arange(3, 9).expand({2, 6});
    const double change = (model->logits(inputs) - wanted).abs().max().item<double>();
    if (config.rope.type == model::RopeType::kNone) {
      EXPECT_GT(change, 1e-3);
    } else {
      EXPECT_LT(change, 1e-5);  // rotary positions are relative
    }
  }
}

/// Packed rows have the same gradients as separate rows: learned and rotary positions, windows.
TEST_P(EveryFamily, DocumentsInARowAreThoseByThemselves) {
  const model::ModelConfig config = model::parse_model_config(GetParam(), "a test");
  if (config.is_encoder_decoder()) {
    GTEST_SKIP() << "reads a document at a time";
  }
  const std::vector<std::vector<int64_t>> rows{{5, 1, 9, 2}, {2, 15}};
  const ForwardInputs joined = small_inputs(config, 2, 17);
  const auto learn = [&](const std::vector<ForwardInputs>& batches) {
    const auto model = small_model(config);
    Tensor loss = at::zeros({});
    std::vector<Tensor> leaves, result;
    model->visit_parameters([&](const std::string&, Tensor& x) {
      if (x.requires_grad()) {
        leaves.push_back(x);
      }
    });
    for (const ForwardInputs& inputs : batches) {
      loss = loss + model->loss(inputs);
    }
    loss.backward();
    result.push_back(loss.detach());
    for (const Tensor& leaf : leaves) {
      result.push_back(leaf.grad());
    }
    return result;
  };
  std::vector<ForwardInputs> alone;
  Tensor labels = joined.ids.clone(), starts = at::zeros_like(labels);
  for (int64_t row = 0; row < 2; ++row) {
    int64_t begin = 0;
    for (const int64_t length : rows[static_cast<size_t>(row)]) {
      ForwardInputs& one = alone.emplace_back();
      one.ids = joined.ids.narrow(0, row, 1).narrow(1, begin, length);
      one.targets = predicted(config, one.ids);
      labels[row][begin] = config.bidirectional ? labels[row][begin] : at::scalar_tensor(-100);
      starts[row].narrow(0, begin, length).fill_(begin);
      begin += length;
    }
  }
  ForwardInputs packed;
  packed.ids = joined.ids;
  packed.targets = predicted(config, labels);
  packed.document_starts = starts;
  packed.positions = at::arange(17) - starts;
  const std::vector<Tensor> wanted = learn(alone), found = learn({packed});
  for (size_t i = 0; i < wanted.size(); ++i) {
    numbers::expect_values(found[i], wanted[i], fmt::format("{}", i));
  }
  packed.positions = Tensor();
  EXPECT_THROW(learn({packed}), Error);  // positions are required
}

TEST(Inputs, BadOnesAreErrorsThatSaySo) {
  const auto config = model::parse_model_config(kSmallModels[0], "test");
  const auto model = small_model(config);
  ForwardInputs inputs = small_inputs(config, 1, 5);
  inputs.targets = {};
  EXPECT_THROW(model->loss(inputs), Error);
  inputs.targets = next_tokens(at::zeros({1, 4}, at::kLong));
  EXPECT_THROW(model->loss(inputs), Error);
  inputs.targets = {};
  inputs.ids = at::zeros({1, 65}, at::kLong);
  try {
    model->logits(inputs);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.message(), testing::AllOf(HasSubstr("65 positions"), HasSubstr("64")));
  }
  inputs.ids = at::full({1, 2}, config.vocab_size, at::kLong);
  EXPECT_THROW(model->logits(inputs), Error);
  inputs.ids = at::zeros({0, 2}, at::kLong);
  EXPECT_THROW(model->logits(inputs), Error);
  inputs.ids = Tensor();
  EXPECT_THROW(model->logits(inputs), Error);
}

TEST(MakeModel, HugeModelsAndWrongPartsAreErrors) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer ends a program that asks for too much memory";
#endif
  const auto huge = model::parse_model_config(
      R"({"model_type": "gpt2", "vocab_size": 60000000, "n_embd": 262144, "n_head": 1, "n_layer": 1})",
      "test");
  try {
    make_model(huge, at::kFloat, at::kCPU);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    EXPECT_THAT(error.message(), HasSubstr("transformer.wte.weight"));
  }
  const auto on_meta = make_model(huge, at::kFloat, at::kMeta);
  EXPECT_TRUE(on_meta->tokens->weight.is_meta());
  const auto config = model::parse_model_config(kSmallModels[0], "test");
  EXPECT_THROW(make_model(config, at::kFloat, at::kCPU, {1, 2}), Error);
  EXPECT_THROW(make_model(config, at::kFloat, at::kCPU, {-1, 1}), Error);
}

TEST(Devices, APlacementMovesParametersAndActivations) {
  const auto config = model::parse_model_config(kSmallModels[1], "test");
  const auto model = small_model(config);
  const ForwardInputs inputs = small_inputs(config, 1, 5);
  const Tensor wanted = model->logits(inputs);
  const auto units = model::unit_bytes(config, 4, 16);
  const auto placement =
      model::place_units(config, units, {{"first", units[0] + 1}, {"second", 1 << 20}});
  EXPECT_EQ(placement.device_of_unit, (std::vector<int64_t>{0, 1, 1, 1}));
  // Both devices are the CPU: the test checks that the placed model computes the same.
  place_on_devices(*model, placement, {at::kCPU, at::kCPU});
  EXPECT_TRUE(at::equal(model->logits(inputs), wanted));
  EXPECT_THROW(place_on_devices(*model, {{0, 0}}, {at::kCPU}), Error);
}

}  // namespace model_test
}  // namespace lockstep::nn
