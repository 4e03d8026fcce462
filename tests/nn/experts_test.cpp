// Mixture of experts compared with an explicit sum over experts, token by token.
#include "nn/experts.h"

#include <cmath>
#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "nn/expert_capacity.h"
#include "nn/testing.h"
#include "numbers.h"

namespace lockstep::nn {
namespace experts_test {

constexpr const char* kMixture =
    R"({"model_type": "mixtral", "vocab_size": 37, "hidden_size": 12, "intermediate_size": 7,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 5,
        "num_experts_per_tok": 2, "initializer_range": 0.5})";

/// Experts of a model's first block and all their parameters by name.
struct Mixture {
  explicit Mixture(const std::string& json)
      : config(model::parse_model_config(json, "a test")),
        layers(config, 0),
        experts(config, layers, 0) {
    experts.visit_slots(each_layer([&](const SlotName& name, Layer& layer) {
      layer.visit_parameters([&](const Parameter& parameter) {
        const std::string full = name.parameter(parameter.name);
        const auto specs = model::parameters_by_name(config);
        if (specs.contains(full)) {
          parameter.value = at::empty(specs.at(full).shape);
          fill_initial(parameter.value, specs.at(full), 3, 0);
          parameter.value.set_requires_grad(true);
          parameters.emplace(full, parameter.value);
        }
      });
    }));
  }
  Tensor matrix(int64_t expert, const char* name) const {
    return parameters.at(
        "model.layers.0.block_sparse_moe.experts." + std::to_string(expert) + "." + name +
        ".weight");
  }
  Tensor router() const { return parameters.at("model.layers.0.block_sparse_moe.gate.weight"); }
  Tensor forward(const Tensor& x) const {
    ForwardInputs inputs;
    inputs.ids = at::zeros({x.size(0), x.size(1)}, at::kLong);
    return experts.forward(x, ForwardContext(config, inputs));
  }

  model::ModelConfig config;
  UnitLayers layers;
  ExpertMlp experts;
  std::map<std::string, Tensor> parameters;
};

Tensor drawn(at::IntArrayRef shape) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  return at::empty(shape).normal_(0, 1, generator);
}

/// Weights of all experts, most of them zero, computed by sorting each token's probabilities.
Tensor plain_weights(const Mixture& mixture, const Tensor& x) {
  const model::Experts& experts = mixture.config.experts;
  const Tensor p = at::softmax(x.matmul(mixture.router().t()), -1);  // [B, T, E]
  const Tensor kept = at::zeros_like(p);
  const Tensor flat = p.detach().flatten(0, 1), marks = kept.view({-1, experts.count});
  for (int64_t token = 0; token < flat.size(0); ++token) {
    std::vector<std::pair<float, int64_t>> order;
    for (int64_t expert = 0; expert < experts.count; ++expert) {
      order.emplace_back(-flat[token][expert].item<float>(), expert);
    }
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < experts.per_token; ++i) {
      marks[token][order[static_cast<size_t>(i)].second] = 1;
    }
  }
  const Tensor weights = p * kept;
  return experts.normalizes ? weights / weights.sum(-1, true) : weights;
}

Tensor plain_forward(const Mixture& mixture, const Tensor& x) {
  const Tensor weights = plain_weights(mixture, x);
  Tensor y = at::zeros_like(x);
  for (int64_t expert = 0; expert < mixture.config.experts.count; ++expert) {
    const Tensor inner = at::silu(x.matmul(mixture.matrix(expert, "w1").t())) *
                         x.matmul(mixture.matrix(expert, "w3").t());
    y = y +
        weights.select(-1, expert).unsqueeze(-1) * inner.matmul(mixture.matrix(expert, "w2").t());
  }
  return y;
}

/// Gradients of the sum of squares of `forward`'s output: by parameter name, and of x as "x".
std::map<std::string, Tensor> gradients_of(
    Mixture& mixture, const Tensor& x, const std::function<Tensor(const Tensor&)>& forward) {
  const Tensor leaf = x.clone().set_requires_grad(true);
  forward(leaf).square().sum().backward();
  std::map<std::string, Tensor> gradients{{"x", leaf.grad()}};
  for (auto& [name, parameter] : mixture.parameters) {
    if (parameter.grad().defined()) {
      gradients.emplace(name, parameter.grad().clone());
      parameter.mutable_grad().reset();
    }
  }
  return gradients;
}

void expect_plain(Mixture& mixture, const Tensor& x, const std::string& what) {
  numbers::expect_values(mixture.forward(x), plain_forward(mixture, x), what);
  const auto ours = gradients_of(mixture, x, [&](const Tensor& in) { return mixture.forward(in); });
  const auto plain =
      gradients_of(mixture, x, [&](const Tensor& in) { return plain_forward(mixture, in); });
  numbers::expect_gradients(ours, plain, what);
}

TEST(Experts, AreTheWeightedSumOfThoseThatWereChosen) {
  Mixture mixture(kMixture);
  expect_plain(mixture, drawn({3, 11, 12}), "two of five");
  std::string one = kMixture;
  one.replace(one.find("per_tok\": 2"), 11, "per_tok\": 1");
  Mixture single(one);
  expect_plain(single, drawn({1, 1, 12}), "one token, one expert");
  std::string all = kMixture;
  all.replace(all.find("per_tok\": 2"), 11, "per_tok\": 5");
  Mixture whole(all);
  expect_plain(whole, drawn({2, 7, 12}), "all of five");
}

TEST(Experts, WeightsAreLeftAsTheSoftmaxGaveThemWhereSoAsked) {
  Mixture mixture(
      R"({"model_type": "qwen3_moe", "vocab_size": 37, "hidden_size": 12, "num_hidden_layers": 1,
          "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 3, "num_experts_per_tok": 2,
          "moe_intermediate_size": 5, "initializer_range": 0.5})");
  Router router(mixture.config.experts);
  router.weight = drawn({3, 12});
  const Tensor x = drawn({9, 12});
  const Routing raw = router.forward(x);
  EXPECT_TRUE(at::equal(raw.weights, raw.routed.probabilities.gather(1, raw.routed.experts)));
  EXPECT_LT(raw.weights.sum(1).max().item<float>(), 1);
  router.experts.normalizes = true;
  numbers::expect_values(router.forward(x).weights.sum(1), at::ones({9}), "normalized");
}

/// Experts of a token and their weights, computed by iterating over groups and experts.
std::map<int64_t, float> plain_choice(
    const model::Experts& experts, const Tensor& scores, const Tensor& correction) {
  const int64_t size = experts.count / experts.groups;
  const auto corrected = [&](int64_t expert) {
    return (scores[expert] + correction[expert]).item<float>();
  };
  std::vector<std::pair<float, int64_t>> groups, order;
  for (int64_t group = 0; group < experts.groups; ++group) {
    std::vector<float> values;
    for (int64_t i = 0; i < size; ++i) {
      values.push_back(corrected(group * size + i));
    }
    std::sort(values.rbegin(), values.rend());
    groups.emplace_back(-(values[0] + values[1]), group);
  }
  std::sort(groups.begin(), groups.end());
  for (int64_t i = 0; i < experts.groups_per_token; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      const int64_t expert = groups[static_cast<size_t>(i)].second * size + j;
      order.emplace_back(-corrected(expert), expert);
    }
  }
  std::sort(order.begin(), order.end());
  std::map<int64_t, float> chosen;
  float sum = 0;
  for (int64_t i = 0; i < experts.per_token; ++i) {
    const int64_t expert = order[static_cast<size_t>(i)].second;
    chosen[expert] = scores[expert].item<float>();
    sum += chosen[expert];
  }
  for (auto& [expert, weight] : chosen) {
    weight *= static_cast<float>(experts.weight_factor) / (experts.normalizes ? sum : 1);
  }
  return chosen;
}

TEST(Experts, OfGroupsAreChosenByCorrectedSigmoidsAndWeighedByPlainOnes) {
  model::Experts experts{.count = 12, .per_token = 3, .width = 5};
  experts.scores = model::RouterScores::kSigmoid;
  experts.groups = 4;
  experts.weight_factor = 2.5;
  const Tensor x = drawn({40, 12});
  for (const int64_t groups : {1, 2, 4}) {
    for (const bool normalizes : {false, true}) {
      experts.groups_per_token = groups;
      experts.normalizes = normalizes;
      Router router(experts);
      router.weight = drawn({12, 12}) * 0.5;
      // Low enough that all corrected scores of some tokens are negative.
      router.correction = drawn({12}) * 0.3 - 0.7;
      const Routing routing = router.forward(x);
      const Tensor scores = at::sigmoid(x.matmul(router.weight.t()));
      for (int64_t token = 0; token < x.size(0); ++token) {
        const auto wanted = plain_choice(experts, scores[token], router.correction);
        std::map<int64_t, float> found;
        for (int64_t i = 0; i < experts.per_token; ++i) {
          found[routing.routed.experts[token][i].item<int64_t>()] =
              routing.weights[token][i].item<float>();
        }
        ASSERT_EQ(found.size(), wanted.size());
        for (const auto& [expert, weight] : wanted) {
          ASSERT_TRUE(found.contains(expert)) << groups << " groups, token " << token;
          EXPECT_NEAR(found[expert], weight, 1e-5);
        }
      }
      numbers::expect_values(
          routing.routed.probabilities.sum(1), at::ones({40}), "inputs of the balance loss");
    }
  }
}

TEST(Experts, OfEqualsTheLowerIsTaken) {
  Mixture mixture(kMixture);
  Router router(mixture.config.experts);
  router.weight = at::zeros({5, 12});
  const Routing routing = router.forward(drawn({4, 12}));
  for (int64_t token = 0; token < 4; ++token) {
    EXPECT_EQ(routing.routed.experts[token][0].item<int64_t>(), 0);
    EXPECT_EQ(routing.routed.experts[token][1].item<int64_t>(), 1);
  }
  EXPECT_TRUE(at::equal(routing.weights, at::full({4, 2}, 0.5)));
}

TEST(Experts, WithoutTokensGetZeroGradientsAndAllTokensMayGoToTheSameOnes) {
  Mixture mixture(kMixture);
  {
    const at::NoGradGuard no_gradient;
    Tensor scores = at::zeros({5, 12});
    scores[3].fill_(4);
    scores[1].fill_(2);
    mixture.router().copy_(scores);
  }
  const Tensor x = drawn({2, 9, 12}).abs();
  expect_plain(mixture, x, "all tokens to 3 and 1");
  const auto gradients =
      gradients_of(mixture, x, [&](const Tensor& in) { return mixture.forward(in); });
  for (const char* name : {"w1", "w2", "w3"}) {
    const std::string key =
        std::string("model.layers.0.block_sparse_moe.experts.4.") + name + ".weight";
    ASSERT_TRUE(gradients.contains(key)) << key;
    EXPECT_EQ(numbers::largest(gradients.at(key)), 0) << key;
  }
}

/// Loss terms of the mixture's layer, computed from their formulas.
Tensor plain_terms(
    const Mixture& mixture, const Tensor& x, const Tensor& real, const RouterTerms& terms) {
  const int64_t count = mixture.config.experts.count;
  const bool is_batch = terms.balance == Balance::kBatch;
  const Tensor logits = x.matmul(mixture.router().t()), p = at::softmax(logits, -1);  // [B, T, E]
  const Tensor chosen = plain_weights(mixture, x).detach().gt(0).to(at::kFloat);
  const Tensor mask = real.unsqueeze(-1).to(at::kFloat);
  Tensor sum = at::zeros({});
  const int64_t groups = is_batch ? 1 : x.size(0);
  for (int64_t i = 0; i < groups; ++i) {
    const auto of = [&](const Tensor& all) {
      return is_batch ? all.flatten(0, 1) : all[i];  // [n, ...]
    };
    const Tensor tokens = of(mask).sum().clamp_min(1);
    const Tensor f = (of(chosen) * of(mask)).sum(0) / tokens;
    const Tensor mean = (of(p) * of(mask)).sum(0) / tokens;
    const Tensor sizes = at::logsumexp(of(logits), -1, true).square();
    sum = sum + terms.balance_coefficient * static_cast<double>(count) * (f * mean).sum() +
          terms.z_coefficient * (sizes * of(mask)).sum() / tokens;
  }
  return sum * terms.weight;
}

TEST(Experts, TermsOfTheirRouterAreAddedToTheGradient) {
  Mixture mixture(kMixture);
  const Tensor x = drawn({3, 7, 12});
  const Tensor real = at::arange(7).lt(at::tensor({7, 2, 0}).unsqueeze(1));
  for (const Balance balance : {Balance::kRows, Balance::kBatch}) {
    const auto terms = std::make_shared<RouterTerms>(RouterTerms{balance, 0.7, 0.2, 1.5});
    const auto log = std::make_shared<RoutingLog>();
    const auto ours = gradients_of(mixture, x, [&](const Tensor& in) {
      ForwardInputs inputs;
      inputs.ids = at::zeros({3, 7}, at::kLong);
      inputs.real_tokens = real;
      inputs.router_terms = terms;
      inputs.routing_log = log;
      return mixture.experts.forward(in, ForwardContext(mixture.config, inputs));
    });
    const Tensor leaf = x.clone().set_requires_grad(true);
    const Tensor value = plain_terms(mixture, leaf, real, *terms);
    (plain_forward(mixture, leaf).square().sum() + value).backward();
    numbers::expect_values(ours.at("x"), leaf.grad(), "the gradient of x");
    Tensor router = mixture.router();
    numbers::expect_values(
        ours.at("model.layers.0.block_sparse_moe.gate.weight"),
        router.grad(),
        "the gradient of the router");
    for (auto& [name, parameter] : mixture.parameters) {
      parameter.mutable_grad().reset();
    }
    const Tensor sums = log->sums(balance).at(0);
    EXPECT_EQ(sums.narrow(0, 0, 5).sum().item<double>(), 2 * 9);  // choices of nine tokens
    numbers::expect_loss(
        1.5 * (0.7 * sums[5].item<double>() + 0.2 * sums[6].item<double>()),
        value.item<double>(),
        "the terms");
  }
}

/// Choices within the experts' capacity, computed token by token; `documents` [B, T] are document
/// numbers.
Tensor plain_kept(
    const Tensor& chosen,
    const Tensor& documents,
    const Tensor& real,
    double factor,
    int64_t count) {
  const int64_t rows = documents.size(0), length = documents.size(1), per_token = chosen.size(1);
  Tensor kept = at::zeros_like(chosen, at::kBool);
  std::map<std::pair<int64_t, int64_t>, int64_t> sizes;
  std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t> taken;
  const auto visit = [&](auto function) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t t = 0; t < length; ++t) {
        if (real[row][t].item<bool>()) {
          function(row, t, documents[row][t].item<int64_t>());
        }
      }
    }
  };
  visit([&](int64_t row, int64_t /*t*/, int64_t document) { ++sizes[{row, document}]; });
  visit([&](int64_t row, int64_t t, int64_t document) {
    const auto tokens = static_cast<double>(sizes[{row, document}] * per_token);
    const double room = std::max(1.0, std::ceil(factor * tokens / static_cast<double>(count)));
    for (int64_t i = 0; i < per_token; ++i) {
      const int64_t expert = chosen[row * length + t][i].item<int64_t>();
      int64_t& before = taken[{row, document, expert}];
      kept[row * length + t][i] = static_cast<double>(before) < room;
      ++before;
    }
  });
  return kept;
}

TEST(Experts, TakeTheFirstOfADocumentThatTheyHaveRoomFor) {
  Mixture mixture(kMixture);
  constexpr int64_t kRows = 3, kLength = 20;
  const Tensor x = drawn({kRows, kLength, 12});
  ForwardInputs inputs;
  inputs.ids = at::zeros({kRows, kLength}, at::kLong);
  inputs.real_tokens = at::arange(kLength).lt(at::tensor({20, 13, 0}).unsqueeze(1));
  // The first row has two documents, the second three, including its padding.
  inputs.document_starts = at::zeros({kRows, kLength}, at::kLong);
  inputs.document_starts[0].slice(0, 9).fill_(9);
  inputs.document_starts[1].slice(0, 2).fill_(2);
  inputs.document_starts[1].slice(0, 13).fill_(13);
  inputs.positions = at::arange(kLength) - inputs.document_starts;
  const Tensor flat = x.flatten(0, 1);
  const Tensor weights = plain_weights(mixture, x).flatten(0, 1);  // [N, E]
  const Tensor chosen = std::get<1>(weights.topk(2, -1));
  for (const double factor : {0.1, 0.5, 1.0, 2.5}) {
    const auto capacity = std::make_shared<ExpertCapacity>(ExpertCapacity{factor});
    const auto log = std::make_shared<RoutingLog>();
    const Tensor kept = plain_kept(chosen, inputs.document_starts, inputs.real_tokens, factor, 5);
    const Tensor of_experts = at::zeros({flat.size(0), 5}).scatter(1, chosen, kept.to(at::kFloat));
    const auto ours = gradients_of(mixture, x, [&](const Tensor& in) {
      ForwardInputs given = inputs;
      given.expert_capacity = capacity;
      given.routing_log = log;
      return mixture.experts.forward(in, ForwardContext(mixture.config, given));
    });
    const auto plain = gradients_of(mixture, x, [&](const Tensor& in) {
      const Tensor all = plain_weights(mixture, in) * of_experts.view({kRows, kLength, 5});
      Tensor y = at::zeros_like(in);
      for (int64_t expert = 0; expert < 5; ++expert) {
        const Tensor inner = at::silu(in.matmul(mixture.matrix(expert, "w1").t())) *
                             in.matmul(mixture.matrix(expert, "w3").t());
        y = y +
            all.select(-1, expert).unsqueeze(-1) * inner.matmul(mixture.matrix(expert, "w2").t());
      }
      return y;
    });
    numbers::expect_gradients(ours, plain, "factor " + std::to_string(factor));
    const double wanted = 2 * 33 - kept.sum().item<double>();
    EXPECT_EQ(log->sums(Balance::kNone).at(0)[7].item<double>(), wanted) << factor;
    EXPECT_EQ(wanted == 0, factor == 2.5) << factor;
  }
}

/// A mixture of identical experts equals one of them.
TEST(Experts, ThatAreAlikeAreOneMlp) {
  Mixture mixture(kMixture);
  {
    const at::NoGradGuard no_gradient;
    for (int64_t expert = 1; expert < 5; ++expert) {
      for (const char* name : {"w1", "w2", "w3"}) {
        mixture.matrix(expert, name).copy_(mixture.matrix(0, name));
      }
    }
  }
  const Tensor x = drawn({2, 5, 12});
  const Tensor inner =
      at::silu(x.matmul(mixture.matrix(0, "w1").t())) * x.matmul(mixture.matrix(0, "w3").t());
  numbers::expect_values(
      mixture.forward(x), inner.matmul(mixture.matrix(0, "w2").t()), "experts that are alike");
}

}  // namespace experts_test
}  // namespace lockstep::nn
