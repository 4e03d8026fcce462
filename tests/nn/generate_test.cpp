// Generation, the key-value cache and initial weights.
#include "nn/generate.h"

#include <map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/description.h"
#include "nn/initialize.h"
#include "nn/key_value_cache.h"
#include "nn/testing.h"

namespace lockstep::nn {
namespace generate_test {

using testing::HasSubstr;

model::ModelConfig small(int family) {
  return model::parse_model_config(kSmallModels[family], "test");
}

std::vector<int64_t> ids_of(const Tensor& ids) {
  const Tensor flat = ids.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

TEST(Generate, WithTheCacheEqualsWithoutIt) {
  for (int family = 0; family < 5; ++family) {
    const auto model = small_model(small(family));
    std::vector<int64_t> text = ids_of(small_inputs(small(family), 1, 5).ids);
    const auto got = generate(*model, text, {.max_new_tokens = 40});
    ASSERT_EQ(got.ids.size(), 40);
    ForwardInputs inputs;
    if (model->config().is_encoder_decoder()) {
      inputs.source = at::tensor(text, at::kLong).unsqueeze(0);
      text = {model->config().decoder_start_token_id};
    }
    for (const int64_t id : got.ids) {
      inputs.ids = at::tensor(text, at::kLong).unsqueeze(0);
      const Tensor last = model->last_logits(inputs)[0];
      // Equal up to rounding: the chosen token is the most likely within the rounding error.
      EXPECT_GT(last[id].item<double>(), last.max().item<double>() - 1e-4) << "family " << family;
      text.push_back(id);
    }
  }
}

/// Prompts of several lengths, one of them twice; some stop early, some generate no tokens.
TEST(Generate, RowsTogetherEqualRowsAlone) {
  for (int family = 0; family < 8; ++family) {
    const auto model = small_model(small(family));
    if (model->config().is_encoder_decoder()) {
      continue;
    }
    const std::vector<int64_t> text = ids_of(small_inputs(small(family), 1, 9).ids);
    std::vector<std::vector<int64_t>> prompts;
    for (const int length : {5, 1, 9, 5, 7, 2}) {
      prompts.emplace_back(text.end() - length, text.end());
    }
    const std::vector<int64_t> most{13, 20, 7, 1, 0, 20};
    const auto plain = generate(*model, prompts[1], {.max_new_tokens = 20});
    const std::vector<int64_t> stops{plain.ids[6]};
    const std::vector<Generated> found = generate_rows(*model, prompts, most, stops);
    ASSERT_EQ(found.size(), prompts.size());
    for (size_t row = 0; row < prompts.size(); ++row) {
      const auto alone =
          generate(*model, prompts[row], {.max_new_tokens = most[row], .stop_tokens = stops});
      EXPECT_EQ(found[row].ids, alone.ids) << "family " << family << ", row " << row;
      EXPECT_EQ(found[row].reason, alone.reason) << "family " << family << ", row " << row;
    }
  }
  EXPECT_TRUE(generate_rows(*small_model(small(0)), {}, {}, {}).empty());
}

TEST(Generate, AWindowBoundsTheCache) {
  const auto config = small(2);
  const auto model = small_model(config);
  const at::NoGradGuard no_gradient;
  KeyValueCache cache(config);
  ForwardInputs inputs;
  inputs.ids = at::zeros({1, 1}, at::kLong);
  inputs.cache = &cache;
  for (int i = 0; i < 500; ++i) {
    model->last_logits(inputs);
  }
  // Two layers of keys and values with two heads of ten elements; at most 64 positions for a window
  // of four.
  EXPECT_LE(cache.bytes(), 2 * 2 * 2 * 10 * 64 * 4);
}

TEST(Generate, StopsAtATokenAtTheCallersWishAndAtTheLength) {
  const auto model = small_model(small(0));
  const auto all = generate(*model, {1, 2, 3}, {.max_new_tokens = 12}).ids;
  std::vector<int64_t> told;
  GenerateOptions options{.max_new_tokens = 12};
  options.stop_tokens = {99, all[4]};
  const auto stopped = generate(*model, {1, 2, 3}, options, [&](int64_t id) {
    told.push_back(id);
    return true;
  });
  const auto first = std::find(all.begin(), all.end(), all[4]) - all.begin();
  EXPECT_EQ(stopped.reason, StopReason::kStopToken);
  EXPECT_EQ(stopped.ids, std::vector<int64_t>(all.begin(), all.begin() + first + 1));
  EXPECT_EQ(told, stopped.ids);
  options.min_new_tokens = first + 3;  // other tokens are generated until stopping is allowed
  const auto longer = generate(*model, {1, 2, 3}, options).ids;
  EXPECT_GE(std::ssize(longer), options.min_new_tokens);
  EXPECT_TRUE(std::equal(all.begin(), all.begin() + first, longer.begin()));
  EXPECT_EQ(std::count(longer.begin(), longer.begin() + options.min_new_tokens, all[4]), 0);
  int calls = 0;
  const auto cut =
      generate(*model, {1, 2, 3}, {.max_new_tokens = 12}, [&](int64_t) { return ++calls < 3; });
  EXPECT_EQ(cut.reason, StopReason::kCallback);
  EXPECT_EQ(cut.ids.size(), 3);
  EXPECT_EQ(generate(*model, {1}, {.max_new_tokens = 0}).ids.size(), 0);
}

TEST(Generate, SamplingDependsOnSeedAndPositionAlone) {
  const auto model = small_model(small(1));
  GenerateOptions options{.max_new_tokens = 20, .temperature = 1.5};
  const auto first = generate(*model, {1, 2, 3}, options).ids;
  EXPECT_EQ(generate(*model, {1, 2, 3}, options).ids, first);
  // Continuing from a prefix of the result gives the same tokens.
  std::vector<int64_t> prompt = {1, 2, 3};
  prompt.insert(prompt.end(), first.begin(), first.begin() + 8);
  options.max_new_tokens = 12;
  EXPECT_EQ(
      generate(*model, prompt, options).ids, std::vector<int64_t>(first.begin() + 8, first.end()));
  options.seed = 1;
  EXPECT_NE(
      generate(*model, prompt, options).ids, std::vector<int64_t>(first.begin() + 8, first.end()));
}

TEST(Generate, ErrorsComeBeforeAnythingIsComputed) {
  const auto model = small_model(small(0));
  const auto problem = [&](const std::vector<int64_t>& prompt,
                           const GenerateOptions& options) -> std::string {
    try {
      generate(*model, prompt, options, [](int64_t) {
        ADD_FAILURE() << "a token was generated";
        return false;
      });
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(problem({}, {}), HasSubstr("no tokens"));
  EXPECT_THAT(problem({37}, {}), HasSubstr("token id 37"));
  EXPECT_THAT(problem({-1}, {}), HasSubstr("token id -1"));
  EXPECT_THAT(problem({1}, {.temperature = -1}), HasSubstr("temperature"));
  EXPECT_THAT(problem({1}, {.temperature = NAN}), HasSubstr("temperature"));
  EXPECT_THAT(problem({1}, {.top_k = -1}), HasSubstr("top_k"));
  EXPECT_THAT(problem({1}, {.top_p = 0}), HasSubstr("top_p"));
  EXPECT_THAT(problem({1}, {.max_new_tokens = -1}), HasSubstr("max_new_tokens"));
  EXPECT_THAT(problem({1}, {.min_new_tokens = -1}), HasSubstr("min_new_tokens"));
  EXPECT_THAT(problem({1}, {.min_new_tokens = 21}), HasSubstr("max_new_tokens, which is 20"));
  EXPECT_THAT(
      problem({1, 2}, {.max_new_tokens = 64}),
      AllOf(
          HasSubstr("65 positions"),
          HasSubstr("n_positions"),
          HasSubstr("64 tokens after a prompt of 2")));
  EXPECT_EQ(generate(*model, {1, 2}, {.max_new_tokens = 63}).ids.size(), 63);
}

TEST(ChooseToken, FollowsTemperatureTopKAndTopP) {
  const Tensor logits = at::tensor({0.5, 0.1, 0.3, 0.06, 0.04}).log();
  const auto draw = [&](GenerateOptions options, double at) {
    return choose_token(logits, options, at);
  };
  EXPECT_EQ(draw({}, 0.99), 0);
  // By descending probability: 0 (0.5), 2 (0.3), 1 (0.1), 3, 4.
  EXPECT_EQ(draw({.temperature = 1}, 0.49), 0);
  EXPECT_EQ(draw({.temperature = 1}, 0.51), 2);
  EXPECT_EQ(draw({.temperature = 1}, 0.85), 1);
  EXPECT_EQ(draw({.temperature = 1}, 0.99), 4);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 2}, 0.99), 2);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 2}, 0.62), 0);  // 0.5 of 0.8
  EXPECT_EQ(draw({.temperature = 1, .top_p = 0.5}, 0.99), 0);
  EXPECT_EQ(draw({.temperature = 1, .top_p = 0.51}, 0.99), 2);
  EXPECT_EQ(draw({.temperature = 1, .top_p = 1e-9}, 0.99), 0);
  EXPECT_EQ(draw({.temperature = 1e-6}, 0.99), 0);
  EXPECT_EQ(draw({.temperature = 0.5}, 0.7), 0);  // 0.25 of 0.3552
  EXPECT_EQ(draw({.temperature = 0.5}, 0.71), 2);
  EXPECT_EQ(draw({.temperature = 1, .top_k = 100}, 0.99), 4);
  EXPECT_THROW(choose_token(at::tensor({0.0F, NAN}), {}, 0), Error);
}

/// The lazily sorted order equals that of a full sort.
TEST(ChooseToken, LargeVocabulariesAreDrawnFromInOrder) {
  constexpr int64_t kTokens = 2000;
  const Tensor logits =
      (at::arange(kTokens) * 7 % 1000 / 125).to(at::kFloat);  // every value occurs twice
  const auto [sorted, order] = at::sort(logits.to(at::kDouble), /*stable=*/true, 0, true);
  for (const int64_t top_k : {0, 700}) {
    const Tensor weights = sorted.exp().narrow(0, 0, top_k > 0 ? top_k : kTokens);
    const Tensor until = weights.cumsum(0) / weights.sum();
    for (const double draw : {0.0, 0.001, 0.03, 0.3, 0.77, 0.98, 0.9999}) {
      const auto place = at::searchsorted(until, draw, false, /*right=*/true).item<int64_t>();
      EXPECT_EQ(
          choose_token(logits, {.temperature = 1, .top_k = top_k}, draw),
          order[place].item<int64_t>())
          << top_k << ' ' << draw;
    }
  }
}

TEST(Initialize, AnyShardDrawsItsOwnPart) {
  const model::ParameterSpec spec{
      "some.weight", {50, 30}, {model::Initialization::Kind::kNormal, 0.02, 7}, true};
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensor whole = at::empty({1500}, type);
    fill_initial(whole, spec, 3);
    EXPECT_EQ(whole.view({50, 30})[7].abs().max().item<double>(), 0);
    for (const auto& [begin, count] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 1}, {1, 1}, {7, 100}, {200, 33}, {215, 20}, {1499, 1}, {300, 0}}) {
      const Tensor part = at::empty({count}, type);
      fill_initial(part, spec, 3, begin);
      EXPECT_TRUE(at::equal(part, whole.narrow(0, begin, count))) << begin;
    }
    EXPECT_THROW(fill_initial(at::empty({2}, type), spec, 3, 1499), Error);
  }
}

TEST(Initialize, DistributionsOfTheFamily) {
  const auto model = make_model(model::preset("gpt2-tiny"), at::kFloat, at::kCPU);
  initialize(*model, 42);
  std::map<std::string, Tensor> values;
  model->visit_parameters(
      [&](const std::string& name, Tensor& parameter) { values[name] = parameter.detach(); });
  const auto check = [&](const std::string& name, double deviation) {
    EXPECT_NEAR(values[name].mean().item<double>(), 0, deviation / 50) << name;
    EXPECT_NEAR(values[name].std().item<double>(), deviation, deviation / 50) << name;
  };
  check("transformer.wte.weight", 0.02);
  check("transformer.h.0.attn.c_attn.weight", 0.02);
  check("transformer.h.0.mlp.c_proj.weight", 0.02 / std::sqrt(10.0));
  EXPECT_TRUE(at::equal(values["transformer.h.0.ln_1.weight"], at::ones({192})));
  EXPECT_TRUE(at::equal(values["transformer.h.0.attn.c_attn.bias"], at::zeros({576})));
  // Normal, not only with the right variance: a fraction of 0.0455 is beyond two standard
  // deviations, 0.0027 beyond three.
  const Tensor far = values["transformer.wte.weight"].abs();
  EXPECT_NEAR((far > 0.04).to(at::kFloat).mean().item<double>(), 0.0455, 1e-3);
  EXPECT_NEAR((far > 0.06).to(at::kFloat).mean().item<double>(), 0.0027, 3e-4);
  EXPECT_FALSE(at::equal(
      values["transformer.h.0.attn.c_attn.weight"], values["transformer.h.1.attn.c_attn.weight"]));
  const Tensor before = values["transformer.wte.weight"].clone();
  initialize(*model, 43);
  EXPECT_FALSE(at::equal(before, values["transformer.wte.weight"]));
}

TEST(Initialize, NewRowsStandNearTheMeanOfTheOld) {
  const auto grown = model::with_vocabulary(small(1), 45);
  const auto model = small_model(grown);
  {
    const at::NoGradGuard no_gradient;
    model->tokens->weight.add_(3);
  }
  const Tensor old = model->tokens->weight.detach().narrow(0, 0, 37).clone();
  initialize_new_rows(*model, 37, 5);
  const Tensor now = model->tokens->weight.detach();
  EXPECT_TRUE(at::equal(now.narrow(0, 0, 37), old));
  const Tensor distance = now.narrow(0, 37, 8) - old.mean(0);
  EXPECT_LT(distance.abs().max().item<double>(), 0.5);
  EXPECT_GT(distance.std().item<double>(), 0.05);
  EXPECT_LT(model->head->weight.detach().narrow(0, 37, 8).mean().abs().item<double>(), 0.1);
}

}  // namespace generate_test
}  // namespace lockstep::nn
