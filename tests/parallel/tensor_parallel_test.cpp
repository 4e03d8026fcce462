// Tests of tensor parallelism.
#include "parallel/tensor/tensor_parallel.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "numbers.h"
#include "parallel/plans.h"
#include "parallel/ranks/head_split.h"

namespace lockstep::parallel {
namespace tensor_parallel_test {

TEST(TensorParallel, LearnsWhatOneRankLearns) {
  for (const char* model : {kOddGpt2, kOddLlama, kOddQwen2}) {
    const Trained one = train_under({}, model);
    EXPECT_LT(one.losses.back(), one.losses.front() + 0.1);
    for (const int ranks : {2, 4}) {
      const PlanCase plan{{.tensor = ranks}};
      expect_equal(train_under(plan, model), one, plan_name(plan));
    }
  }
}

/// Counts the weight gradients that are computed while an input gradient is being all-reduced.
TEST(TensorParallel, WeightGradientsAreMadeWhileInputGradientsAreSummed) {
  const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
  comm::run_ranks(2, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.tensor = 2});
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    const ShardedModel sharded = make_sharded_model(spec, {}, axes);
    // Number of all-reduces started before the parameter's gradient.
    std::map<std::string, int> sums_before;
    int sums = 0;
    sharded.model->visit_parameters([&](const std::string& name, Tensor& parameter) {
      parameter.register_hook([&, name](const Tensor&) { sums_before[name] = sums; });
    });
    const Tensor loss = sharded.model->loss(plan_inputs(config, 0, {0, kPlanRows}, kPlanLength));
    world.set_observer(
        [&](const comm::Call& call) { sums += call.operation == "all_reduce" ? 1 : 0; });
    loss.backward();
    world.set_observer(nullptr);
    // The head first, then MLP and attention of each layer, from the last layer.
    EXPECT_EQ(sums_before.at("transformer.h.1.mlp.c_proj.weight"), 1);
    EXPECT_EQ(sums_before.at("transformer.h.1.mlp.c_fc.weight"), 2);
    EXPECT_EQ(sums_before.at("transformer.h.1.attn.c_attn.weight"), 3);
    EXPECT_EQ(sums_before.at("transformer.h.0.attn.c_attn.weight"), 5);
    EXPECT_EQ(sums, 5);
  });
}

TEST(TensorParallel, NormsStayNorms) {
  const model::ModelConfig config = model::parse_model_config(kOddT5, "a test");
  comm::run_ranks(2, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.tensor = 2});
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    const ShardedModel sharded = make_sharded_model(spec, {}, axes);
    int norms = 0, entrances = 0;
    sharded.model->visit_slots([&](const nn::SlotName& name, const nn::Slot& slot) {
      if (auto* norm = slot.as<nn::Norm>()) {
        const nn::Norm& found = **norm;
        EXPECT_EQ(typeid(found), typeid(nn::Norm)) << name.role;
        ++norms;
      } else if (auto* boundary = slot.as<nn::RegionBoundary>()) {
        const nn::RegionBoundary& found = **boundary;
        EXPECT_NE(typeid(found), typeid(nn::RegionBoundary)) << name.role;
        ++entrances;
      }
    });
    EXPECT_EQ(norms, 3 * 2 + 1 + 2 * 3 + 1);  // and one region boundary after each
    EXPECT_EQ(entrances, norms);
  });
}

TEST(TensorParallel, EvaluatesAndGeneratesLikeOneRank) {
  for (const char* json : {kOddGpt2, kOddLlama, kOddQwen2, kOddQwen3}) {
    const model::ModelConfig config = model::parse_model_config(json, "a test");
    nn::ForwardInputs inputs = plan_inputs(config, 0, {0, kPlanRows}, kPlanLength);
    inputs.training = false;
    std::map<int, Tensor> statistics, logits;
    for (const int ranks : {1, 2, 3}) {
      comm::run_ranks(ranks, [&](comm::Communicator& world) {
        ParallelGroups axes(world, {.tensor = ranks});
        const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
        const ShardedModel sharded = make_sharded_model(spec, {}, axes);
        const Tensor sums = sums_of(*sharded.model, inputs);
        const at::NoGradGuard no_grad;
        const Tensor last = sharded.model->last_logits(inputs);
        if (world.rank() == ranks - 1) {
          statistics[ranks] = sums;
          logits[ranks] = last;
        }
      });
      numbers::expect_values(
          statistics[ranks], statistics[1], fmt::format("statistics on {}", ranks));
      numbers::expect_values(logits[ranks], logits[1], fmt::format("logits on {}", ranks));
    }
  }
}

TEST(TensorParallel, NamesATokenThatTheVocabularyDoesNotHave) {
  const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
  comm::run_ranks(2, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.tensor = 2});
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    const ShardedModel sharded = make_sharded_model(spec, {}, axes);
    for (const bool is_label : {false, true}) {
      nn::ForwardInputs inputs = plan_inputs(config, 0, {0, kPlanRows}, kPlanLength);
      (is_label ? inputs.targets.tokens : inputs.ids)[1][4] = 101;
      try {
        (void)sharded.model->loss(inputs);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kData);
        EXPECT_NE(error.message().find("101"), std::string::npos) << error.what();
      }
    }
  });
}

TEST(TensorParallel, NoRankHoldsMoreThanItsPart) {
  const model::ModelConfig config = model::parse_model_config(kOddLlama, "a test");
  comm::run_ranks(3, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.tensor = 3});
    int64_t filled = 0, largest = 0;
    ModelSpec spec{config, at::kFloat, at::kCPU, nullptr};
    spec.fill = [&](const std::string&,
                    const ShardedParameter& parameter,
                    int64_t begin,
                    const Tensor& values) {
      EXPECT_EQ(begin, 0);
      filled += values.numel();
      EXPECT_EQ(values.sizes(), at::IntArrayRef(parameter.cut.local_shape(parameter.shape)));
      largest = std::max(largest, values.numel());
      values.fill_(0);
    };
    (void)make_sharded_model(spec, {}, axes);
    // One third of the vocabulary.
    EXPECT_EQ(largest, 24 * mesh::split_evenly(103, 3, world.rank()).size());
    EXPECT_LT(filled, 0.45 * static_cast<double>(model::parameter_count(config)));
  });
}

TEST(HeadSplit, DealsEveryQueryOnceAndKeepsItsKeysBesideIt) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int64_t, int64_t>>{{7, 7}, {6, 2}, {12, 3}, {5, 1}, {8, 4}}) {
    model::ModelConfig config;
    config.heads = heads;
    config.kv_heads = kv_heads;
    for (int ranks = 1; ranks <= heads; ++ranks) {
      int64_t next = 0;
      std::vector<int> holders(static_cast<size_t>(kv_heads));
      for (int rank = 0; rank < ranks; ++rank) {
        const HeadSplit split = split_heads(config, rank, ranks);
        EXPECT_EQ(split.queries.begin, next);
        next = split.queries.end;
        ASSERT_GT(split.queries.size(), 0);
        EXPECT_EQ(split.queries.size() % split.key_values.size(), 0);
        const int64_t group = heads / kv_heads;
        EXPECT_EQ(split.queries.begin / group, split.key_values.begin);
        EXPECT_EQ((split.queries.end - 1) / group, split.key_values.end - 1);
        for (int64_t head = split.key_values.begin; head < split.key_values.end; ++head) {
          EXPECT_EQ(holders[static_cast<size_t>(head)]++, split.copy);
        }
      }
      EXPECT_EQ(next, heads);
      for (int rank = 0; rank < ranks; ++rank) {
        const HeadSplit split = split_heads(config, rank, ranks);
        EXPECT_EQ(holders[static_cast<size_t>(split.key_values.begin)], split.copies);
      }
    }
  }
}

TEST(TensorParallel, RefusesMoreRanksThanHeadsAndSaysWhatWouldWork) {
  const model::ModelConfig config = model::parse_model_config(kOddGpt2, "a test");
  comm::run_ranks(5, [&](comm::Communicator& world) {
    ParallelGroups axes(world, {.tensor = 5});
    const ModelSpec spec{config, at::kFloat, at::kCPU, fill_at_random(config, 3)};
    try {
      (void)make_sharded_model(spec, {}, axes);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(error.message().find("4 query heads"), std::string::npos) << error.what();
      EXPECT_NE(error.remedy().find("at most 4"), std::string::npos) << error.what();
    }
  });
}

}  // namespace tensor_parallel_test
}  // namespace lockstep::parallel
