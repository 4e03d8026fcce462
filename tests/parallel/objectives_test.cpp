// Plan tests of objectives other than language modeling: paired rows, losses with two terms,
// weights that depend on scores.
#include <gtest/gtest.h>

#include "nn/continuations.h"
#include "nn/initialize.h"
#include "objective/reference.h"
#include "parallel/objective_rows.h"
#include "parallel/products.h"

namespace lockstep::parallel {
namespace objectives_test {

using namespace objective_rows;

/// Plans of classifiers: three outputs on up to four tensor ranks, so the head is not sharded.
std::vector<PlanCase> plans_of_classifiers() {
  std::vector<PlanCase> table = plans();
  table.push_back({{.tensor = 4}, 2});
  table.push_back({{.pipeline = 2, .tensor = 4}, 1, {.sequence_sharding = kShards}});
  return table;
}

/// Tests that run on two families; the second one is part of the long tests.
class ObjectivePlans : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(OfLlama, ObjectivePlans, ::testing::Values(kOddLlama));
INSTANTIATE_TEST_SUITE_P(Long, ObjectivePlans, ::testing::Values(kOddGpt2));

TEST_P(ObjectivePlans, Classifier) {
  expect_table(with_five_layers(GetParam()), plans_of_classifiers(), classifying(), classified);
}

TEST(PlanTable, LanguageSmoothed) {
  const auto objective = objective::cross_entropy(/*label_smoothing=*/0.15);
  expect_table(with_five_layers(kOddGpt2), plans(), trained_for(objective), plan_inputs);
}

TEST(PlanTable, ClassifierSmoothed) {
  const auto objective =
      objective::class_cross_entropy({{1, 2, 0.5}, /*focal_gamma=*/1, /*label_smoothing=*/0.2});
  expect_table(
      with_five_layers(kOddLlama), plans_of_classifiers(), classifying(objective), classified);
}

TEST(PlanTable, SeveralLabels) {
  const auto objective = objective::label_cross_entropy({{1, 2, 0.5}, /*focal_gamma=*/1});
  expect_table(
      with_five_layers(kOddGpt2), plans_of_classifiers(), classifying(objective), labelled);
}

TEST(PlanTable, Numbers) {
  const auto objective = objective::squared_error();
  expect_table(
      with_five_layers(kOddGpt2), plans_of_classifiers(), classifying(objective), labelled);
}

/// Class logits of rows of several lengths, including one without a class, under every plan.
TEST_P(ObjectivePlans, ClassScores) {
  const model::ModelConfig config = model::with_head(
      model::parse_model_config(with_five_layers(GetParam()), "a test"),
      {model::HeadSpec::Kind::kClassifier, {"bad", "so so", "good"}});
  const ModelSpec spec{.config = config, .fill = fill_at_random(config, 3)};
  const auto rows = [&](int64_t parts, int64_t part) {
    nn::ForwardInputs inputs =
        classified(config, 0, mesh::split_evenly(kPlanRows, parts, part), kPlanLength);
    const Tensor first = at::arange(kPlanRows).narrow(
        0, mesh::split_evenly(kPlanRows, parts, part).begin, inputs.ids.size(0));
    const Tensor positions = kPlanLength - 1 - (first * 3).remainder(kPlanLength);
    inputs.targets = nn::classes_at(positions, at::zeros_like(first), kPlanLength);
    inputs.training = false;
    return std::pair(inputs, positions);
  };
  const auto plain = nn::make_model(config, at::kFloat, at::kCPU);
  nn::initialize(*plain, 3);
  const auto [whole, positions] = rows(1, 0);
  const at::NoGradGuard no_gradient;
  const Tensor logits = plain->logits(whole);  // [B, T, 3]
  const Tensor wanted = logits.gather(1, positions.view({-1, 1, 1}).expand({-1, 1, 3})).squeeze(1);
  std::vector<PlanCase> table = plans();
  table.push_back({{.tensor = 4}, 2});
  for (PlanCase plan : table) {
    plan.plan.sequence_length = kPlanLength;
    comm::run_ranks(plan.mesh.ranks(), [&](comm::Communicator& world) {
      ParallelGroups axes(world, plan.mesh);
      const auto model = parallelize(spec, plan.plan, axes);
      const nn::ForwardInputs own = rows(plan.mesh.data, axes.coordinate().data).first;
      const mesh::Range part =
          mesh::split_evenly(kPlanRows, plan.mesh.data, axes.coordinate().data);
      numbers::expect_values(
          model->class_scores({&own, 1}).front(),
          wanted.narrow(0, part.begin, part.size()),
          plan_name(plan));
    });
  }
}

/// Log-likelihoods of continuations, from which classes are chosen, and the most likely token after
/// each prompt, from which text is generated. Both under every plan; if a plan permits it, each
/// prompt is processed once.
TEST_P(ObjectivePlans, TextsBehindPrompts) {
  const std::vector<nn::TokenIds> texts{{3, 5}, {3, 6, 2, 1}, {7}};
  const model::ModelConfig config =
      model::parse_model_config(with_five_layers(GetParam()), "a test");
  const ModelSpec spec{.config = config, .fill = fill_at_random(config, 3)};
  const auto prompts_of = [&](int64_t parts, int64_t part) {
    const Tensor ids = plan_inputs(config, 0, {0, kPlanRows}, kPlanLength).ids;
    const mesh::Range range = mesh::split_evenly(kPlanRows, parts, part);
    std::vector<nn::TokenIds> prompts;
    for (int64_t row = range.begin; row < range.end; ++row) {
      const auto* const first = ids.const_data_ptr<int64_t>() + row * kPlanLength;
      prompts.emplace_back(first, first + kPlanLength - 2 * row);
    }
    return prompts;
  };
  const auto rows_of = [&](const std::vector<nn::TokenIds>& prompts) {
    std::vector<nn::TokenIds> rows;
    std::vector<size_t> begins;
    for (const nn::TokenIds& prompt : prompts) {
      for (const nn::TokenIds& text : texts) {
        rows.push_back(prompt);
        rows.back().insert(rows.back().end(), text.begin(), text.end());
        begins.push_back(prompt.size());
      }
    }
    return nn::predicted_from(rows, begins);
  };
  // The last token of each prompt makes the prediction; the target token itself does not matter.
  const auto asked = [](std::vector<nn::TokenIds> prompts) {
    std::vector<size_t> begins;
    for (nn::TokenIds& prompt : prompts) {
      begins.push_back(prompt.size());
      prompt.push_back(0);
    }
    return nn::predicted_from(prompts, begins);
  };
  const auto plain = nn::make_model(config, at::kFloat, at::kCPU);
  nn::initialize(*plain, 3);
  const at::NoGradGuard no_gradient;
  const std::vector<nn::TokenIds> all = prompts_of(1, 0);
  const Tensor wanted = plain->scores(rows_of(all)).log_likelihoods.sum(1, false, at::kDouble);
  std::vector<double> next;
  for (const nn::TokenIds& prompt : all) {
    nn::ForwardInputs alone;
    alone.ids = at::tensor(prompt, at::kLong).unsqueeze(0);
    next.push_back(plain->last_logits(alone).argmax(-1).item().toDouble());
  }
  int64_t cached = 0;
  for (PlanCase plan : plans()) {
    plan.plan.sequence_length = kPlanLength;
    const bool is_cached = plan.mesh.pipeline == 1 && plan.mesh.context == 1 &&
                           plan.plan.zero_stage < 3 &&
                           plan.plan.sequence_sharding == SequenceSharding::kNone;
    cached += is_cached ? 1 : 0;
    comm::run_ranks(plan.mesh.ranks(), [&](comm::Communicator& world) {
      ParallelGroups axes(world, plan.mesh);
      const auto model = parallelize(spec, plan.plan, axes);
      const int64_t parts = plan.mesh.data, part = axes.coordinate().data;
      const std::vector<nn::TokenIds> own = prompts_of(parts, part);
      const mesh::Range range = mesh::split_evenly(kPlanRows, parts, part);
      const auto count = std::ssize(texts);
      const Tensor here = wanted.narrow(0, range.begin * count, range.size() * count);
      const nn::ForwardInputs rows = rows_of(own), last = asked(own);
      numbers::expect_values(model->row_scores({&rows, 1}).front(), here, plan_name(plan));
      const Tensor tokens = model->next_tokens({&last, 1}).front();
      for (int64_t i = 0; i < range.size(); ++i) {
        EXPECT_EQ(tokens[i].item<double>(), next[static_cast<size_t>(range.begin + i)])
            << plan_name(plan);
      }
      ASSERT_EQ(model->cacheable() != nullptr, is_cached) << plan_name(plan);
      if (is_cached) {
        const nn::Continuations continuations(*model->cacheable(), own, at::kCPU);
        numbers::expect_values(
            continuations.log_likelihoods(texts, 4).view({-1}), here, plan_name(plan));
      }
    });
  }
  EXPECT_GE(cached, 3);
}

/// The most likely token after a prefix of each row for an encoder-decoder model, as in generation
/// with T5, under every supported plan.
TEST(PlanTable, NextTokensOfT5) {
  for (const char* json : {kOddT5, kOddT5Gated}) {
    const model::ModelConfig config = model::parse_model_config(json, "a test");
    const ModelSpec spec{.config = config, .fill = fill_at_random(config, 3)};
    const Tensor positions = kPlanLength - 1 - (at::arange(kPlanRows) * 3).remainder(kPlanLength);
    const auto rows = [&](mesh::Range range) {
      nn::ForwardInputs inputs = plan_inputs(config, 0, range, kPlanLength);
      const Tensor own = positions.narrow(0, range.begin, range.size());
      inputs.targets = nn::classes_at(own, at::zeros_like(own), kPlanLength);
      inputs.training = false;
      return inputs;
    };
    const auto plain = nn::make_model(config, at::kFloat, at::kCPU);
    nn::initialize(*plain, 3);
    const at::NoGradGuard no_gradient;
    const Tensor logits = plain->logits(rows({0, kPlanRows}));
    const Tensor wanted =
        logits.argmax(-1).gather(1, positions.unsqueeze(1)).squeeze(1).to(at::kDouble);
    for (PlanCase plan :
         {PlanCase{{}, 1, {}},
          {{.data = 3}, 1, {.zero_stage = 3}},
          {{.pipeline = 3}, 1, {}},
          {{.tensor = 3}, 1, {}},
          {{.tensor = 2}, 1, {.sequence_sharding = kShards}},
          {{.context = 3}, 1, {}},
          {{.pipeline = 2, .data = 2, .tensor = 2}, 1, {.zero_stage = 1}}}) {
      plan.plan.sequence_length = kPlanLength;
      comm::run_ranks(plan.mesh.ranks(), [&](comm::Communicator& world) {
        ParallelGroups axes(world, plan.mesh);
        const auto model = parallelize(spec, plan.plan, axes);
        const mesh::Range range =
            mesh::split_evenly(kPlanRows, plan.mesh.data, axes.coordinate().data);
        const nn::ForwardInputs own = rows(range);
        EXPECT_TRUE(at::equal(
            model->next_tokens({&own, 1}).front(), wanted.narrow(0, range.begin, range.size())))
            << plan_name(plan);
      });
    }
  }
}

TEST(PlanTable, PreferenceWithLikelihoodOfPrompts) {
  const auto odds_ratio = objective::direct_preference(
      {.loss = objective::PairLoss::kOddsRatio,
       .beta = 0.1,
       .reference = false,
       .per_token = true,
       .likelihood = 1});
  expect_table(with_five_layers(kOddGpt2), plans(), trained_for(odds_ratio), pairs_with_prompts);
}

TEST(PlanTable, PreferenceOfAnswers) {
  expect_table(
      with_five_layers(kOddGpt2),
      few_plans(),
      trained_for(objective::answer_preference({.beta = 0.3, .undesirable_weight = 1.3})),
      answers);
}

TEST(PlanTable, Rewards) {
  const auto objective = objective::reward_of_pairs(0.1);
  std::vector<PlanCase> table = few_plans();
  table.push_back({{.tensor = 4}, 2, {.sequence_sharding = kShards}});
  table.push_back({{.pipeline = 2, .tensor = 2}, 1, {.sequence_sharding = kShards}});
  const auto reward = [&](ModelSpec& spec) {
    spec.config = model::with_head(spec.config, model::reward_head());
    spec.fill = fill_at_random(spec.config, 3);
    spec.objective = objective;
  };
  expect_table(with_five_layers(kOddLlama), table, reward, rewarded_pairs);
}

TEST_P(ObjectivePlans, Preference) {
  const auto objective = objective::direct_preference({.beta = 0.2});
  expect_table(with_five_layers(GetParam()), plans(), trained_for(objective), pairs);
}

/// Reference scores of all rows are computed in one pass before training and reused in its steps,
/// regardless of how rows are distributed to ranks and micro-batches.
TEST(PlanTable, StoredReferenceScores) {
  const model::ModelConfig config = model::parse_model_config(with_five_layers(kOddGpt2), "a test");
  const ModelSpec spec{
      .config = config,
      .fill = fill_at_random(config, 3),
      .objective = objective::direct_preference()};
  const auto plain = nn::make_model(config, at::kFloat, at::kCPU);
  nn::initialize(*plain, 3);
  nn::ForwardInputs whole = pairs(config, 0, {0, kPlanRows}, kPlanLength);
  whole.training = false;
  const Tensor wanted = plain->scores(whole).log_likelihoods.sum(1, false, at::kDouble);
  for (PlanCase plan : plans()) {
    plan.plan.sequence_length = kPlanLength;
    comm::run_ranks(plan.mesh.ranks(), [&](comm::Communicator& world) {
      ParallelGroups axes(world, plan.mesh);
      const auto model = parallelize(spec, plan.plan, axes);
      const auto part_of = [&](int64_t parts, int64_t part) {
        return pairs(config, 0, mesh::split_evenly(kPlanRows, parts, part), kPlanLength);
      };
      objective::StoredScores scores;
      const nn::ForwardInputs own = part_of(plan.mesh.data, axes.coordinate().data);
      scores.store({&own, 1}, [&](auto batches) { return model->row_scores(batches); });
      for (const std::string& text :
           comm::gather_strings(axes.along(mesh::Axis::kData), scores.text())) {
        scores.add(text);
      }
      std::vector<nn::ForwardInputs> others{part_of(3, 0), part_of(3, 1), part_of(3, 2)};
      scores.refer(others);
      std::vector<Tensor> found;
      for (const nn::ForwardInputs& inputs : others) {
        found.push_back(inputs.targets.reference);
      }
      numbers::expect_values(at::cat(found), wanted, plan_name(plan));
    });
  }
}

/// The reference of a trained adapter is the model without the adapter, under every plan.
TEST(PlanTable, AdaptersOffAreTheirReference) {
  const model::ModelConfig config = model::parse_model_config(with_five_layers(kOddGpt2), "a test");
  for (const bool decomposes : {false, true}) {
    model::LoraConfig lora;
    lora.use_dora = decomposes;
    const testing::Adapt adapt = [&](nn::LanguageModel& model) {
      testing::adapt_low_rank(model, testing::Base::kFrozen, lora);
    };
    const ModelSpec spec{
        .config = config,
        .fill = testing::fill_adapted(config, adapt),
        .adapt = adapt,
        .objective = objective::direct_preference()};
    const auto plain = nn::make_model(config, at::kFloat, at::kCPU);
    nn::initialize(*plain, 3);
    nn::ForwardInputs whole = pairs(config, 0, {0, kPlanRows}, kPlanLength);
    whole.training = false;
    const Tensor wanted = plain->scores(whole).log_likelihoods.sum(1, false, at::kDouble);
    for (PlanCase plan : std::vector<PlanCase>{
             {{}, 1},
             {{.tensor = 2}, 1},
             {{.pipeline = 2, .tensor = 2}, 2, {.pipeline = {.schedule = "zb-h1"}}}}) {
      plan.plan.sequence_length = kPlanLength;
      comm::run_ranks(plan.mesh.ranks(), [&](comm::Communicator& world) {
        ParallelGroups axes(world, plan.mesh);
        const auto model = parallelize(spec, plan.plan, axes);
        const objective::RowScorer score = [&](auto batches) { return model->row_scores(batches); };
        objective::AdaptersOff reference(score, [&](bool on) { model->set_adapters(on); });
        nn::ForwardInputs inputs = whole;
        reference.refer({&inputs, 1});
        numbers::expect_values(inputs.targets.reference, wanted, plan_name(plan));
        const Tensor adapted = score({&whole, 1}).front();
        EXPECT_GT((adapted - wanted).abs().max().item<double>(), 1e-2) << plan_name(plan);
      });
    }
  }
}

class UnlearningPlans : public ::testing::TestWithParam<objective::ObjectivePointer (*)()> {};
INSTANTIATE_TEST_SUITE_P(OfNpo, UnlearningPlans, ::testing::Values(+[] {
                           return objective::negative_preference({.alpha = 0.7, .beta = 0.2});
                         }));
INSTANTIATE_TEST_SUITE_P(
    Long,
    UnlearningPlans,
    ::testing::Values(
        +[] { return objective::gradient_difference({.gamma = 0.5, .alpha = 2}); },
        +[] { return objective::weighted_ascent({.alpha = 0.5, .beta = 0.3}); }));

TEST_P(UnlearningPlans, EqualOneRank) {
  expect_table(with_five_layers(kOddLlama), plans(), trained_for(GetParam()()), forgotten_and_kept);
}

TEST(PlanTable, UnlearningByTokensAndAlternates) {
  expect_table(
      with_five_layers(kOddGpt2),
      few_plans(),
      trained_for(objective::weighted_ascent({.alpha = 0.5, .beta = 0.3, .saturation = 0.7})),
      forgotten_and_kept);
  expect_table(
      with_five_layers(kOddGpt2),
      few_plans(),
      trained_for(objective::others_instead({.alpha = 0})),
      other_tokens);
  expect_table(
      with_five_layers(kOddLlama),
      few_plans(),
      trained_for(objective::alternate_preference({.alpha = 0.7, .beta = 0.2})),
      alternates);
}

TEST_P(ObjectivePlans, DivergenceFromAFrozenModel) {
  const auto objective = objective::negative_preference({.alpha = 0.7, .beta = 0.2});
  expect_table(
      with_five_layers(GetParam()),
      plans(),
      trained_for(objective),
      forgotten_and_compared,
      frozen_model);
}

TEST(PlanTable, LoweredDistributionsOfAFrozenModel) {
  expect_table(
      with_five_layers(kOddLlama),
      few_plans(),
      trained_for(objective::lowered_distribution({.alpha = 0.7})),
      lowered,
      frozen_model);
}

nn::ForwardInputs levelled_and_compared(
    const model::ModelConfig& config, int64_t step, mesh::Range units, int64_t length) {
  nn::ForwardInputs inputs = levelled(config, step, units, length);
  const auto compared =
      forgotten_and_compared(config, step, units, length).targets.distributions.positions;
  inputs.targets = nn::with_distributions(inputs.targets, compared);
  return inputs;
}

TEST_P(ObjectivePlans, LevelLogits) {
  const auto objective = objective::level_distribution({.gamma = 0.3, .retain_bound = 0.7});
  expect_table(with_five_layers(GetParam()), plans(), trained_for(objective), levelled);
  expect_table(
      with_five_layers(GetParam()),
      few_plans(),
      trained_for(objective),
      levelled_and_compared,
      frozen_model);
}

TEST_P(ObjectivePlans, StatesAtALayer) {
  std::vector<PlanCase> table = plans();
  table.push_back({{.pipeline = 2, .tensor = 2}, 1, {.sequence_sharding = kShards}});
  table.push_back({{.pipeline = 4}, 2});
  const auto vary = ending_at_a_layer(objective::Means::kOfStep);
  expect_table(with_five_layers(GetParam()), table, vary, steered, steering);
}

/// LoRA on packed weights, with references of each kind.
TEST(PlanTable, ObjectivesOfAdaptersBesidePackedWeights) {
  const auto adapted = [](const std::function<void(ModelSpec&)>& trained) {
    return [trained](ModelSpec& spec) {
      trained(spec);
      testing::pack(spec, {ops::PackedKind::kNf4, 64, true}, [](nn::LanguageModel& model) {
        testing::adapt_low_rank(model, testing::Base::kFrozen);
      });
    };
  };
  const auto forgets = objective::negative_preference({.gamma = 0.3, .beta = 0.2});
  const auto prefers = objective::direct_preference({.beta = 0.2});
  expect_table(with_five_layers(kOddGpt2), few_plans(), adapted(trained_for(prefers)), pairs);
  expect_table(kOddLlama, few_plans(), adapted(trained_for(forgets)), forgotten_and_kept);
  expect_table(
      kOddLlama, few_plans(), adapted(trained_for(forgets)), forgotten_and_compared, frozen_model);
  const auto steers = adapted(ending_at_a_layer(objective::Means::kOfStep));
  expect_table(with_five_layers(kOddGpt2), few_plans(), steers, steered, steering);
}

/// Trained parameters start at the third layer, so some stages have none.
TEST(PlanTable, StatesOfFrozenLayers) {
  const auto vary = ending_at_a_layer(
      objective::Means::kOfStep, {R"(^(?!(?:model\.layers\.(2|3)\.mlp\.down_proj\.weight)$))"});
  expect_table(with_five_layers(kOddLlama), few_plans(), vary, steered, steering);
}

/// The same micro-batches, distributed differently over the ranks.
TEST(PlanTable, StatesByMicroBatches) {
  const auto vary = ending_at_a_layer(objective::Means::kOfMicroBatches);
  const auto train = [&](const PlanCase& plan) {
    return train_under(plan, with_five_layers(kOddLlama), 2, kPlanLength, vary, steered, steering);
  };
  const Trained one = train({{}, 4});
  for (PlanCase plan : std::vector<PlanCase>{
           {{.data = 2}, 2, {.zero_stage = 2}},
           {{.data = 4}, 1, {.zero_stage = 3}},
           {{.pipeline = 2, .context = 2}, 4}}) {
    plan.plan.sequence_length = kPlanLength;
    Trained found = train(plan);
    found.sums.back() = one.sums.back();  // evaluation batches differ
    expect_equal(found, one, plan_name(plan));
  }
}

/// Compares the loss and its gradient with the direct formula over all logits.
TEST(Divergence, IsThatOfAllLogits) {
  const model::ModelConfig config = model::parse_model_config(kOddLlama, "a test");
  nn::ForwardInputs inputs = forgotten_and_compared(config, 0, {0, kPlanRows}, kPlanLength);
  inputs.training = false;
  const Tensor &compared = inputs.targets.distributions.positions, &tokens = inputs.targets.tokens;
  const auto plain = nn::make_model(config, at::kFloat, at::kCPU);
  const auto other = nn::make_model(config, at::kFloat, at::kCPU);
  nn::initialize(*plain, 3);
  nn::initialize(*other, 9);
  const Tensor log_p = at::log_softmax(plain->logits(inputs), -1);
  const Tensor log_q = at::log_softmax(other->logits(inputs).detach(), -1);
  const Tensor divergence = (log_q.exp() * (log_q - log_p)).sum(-1);
  const Tensor likelihood = log_p.gather(-1, tokens.clamp_min(0).unsqueeze(-1)).squeeze(-1);
  const Tensor counts = tokens.ne(ops::kIgnoredTarget);
  const double forgotten = static_cast<double>(
                   counts.logical_and(compared.logical_not()).sum().item<int64_t>()),
               kept = static_cast<double>(compared.sum().item<int64_t>());
  const Tensor wanted =
      (likelihood * counts.logical_and(compared.logical_not())).sum() * (0.5 / forgotten) +
      (divergence * compared).sum() * (2 / kept);
  wanted.backward();

  comm::run_ranks(1, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {});
    ModelSpec spec{.config = config, .fill = fill_at_random(config, 3)};
    spec.objective = objective::gradient_difference({.gamma = 0.5, .alpha = 2});
    const auto model = parallelize(spec, {}, axes);
    frozen_model(spec, {}, axes)->refer({&inputs, 1});
    const StepResult result =
        model->forward_backward({&inputs, 1}, model->objective().counts(inputs.targets));
    numbers::expect_loss(result.loss, wanted.item<double>(), "divergence");
    std::map<std::string, Tensor> found, expected;
    model->visit_gradients(
        [&](const StateSlice& slice) { add_to_whole(slice, found[slice.name]); });
    plain->visit_parameters(
        [&](const std::string& name, Tensor& parameter) { expected[name] = parameter.grad(); });
    numbers::expect_gradients(found, expected, "divergence");
  });
}

/// With ZeRO 3 each rank stores only its shard of an evaluation model.
TEST(EvaluationModel, SharesItsValuesUnderZero3) {
  const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
  const ModelSpec spec{.config = config, .fill = fill_at_random(config, 3)};
  nn::ForwardInputs inputs = plan_inputs(config, 0, {0, kPlanRows}, kPlanLength);
  inputs.training = false;
  std::vector<Tensor> found;
  std::mutex mutex;
  for (const int stage : {0, 3}) {
    comm::run_ranks(2, [&](comm::Communicator& world) {
      ParallelGroups axes(world, {.data = 2});
      Plan plan;
      plan.zero_stage = stage;
      const auto model = evaluation_model(spec, plan, axes);
      const Tensor scores = model->row_scores({&inputs, 1}).front();
      const std::scoped_lock lock(mutex);
      found.push_back(scores);
    });
  }
  for (const Tensor& scores : found) {
    EXPECT_TRUE(scores.equal(found.front()));
  }
}
}  // namespace objectives_test
}  // namespace lockstep::parallel
