// Tests of ParallelModel under data parallelism.
#include <cmath>
#include <map>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "base/format.h"
#include "comm/threads.h"
#include "nn/initialize.h"
#include "numbers.h"
#include "parallel/parallelize.h"

namespace lockstep::parallel {
namespace parallel_model_test {

using comm::Communicator;

constexpr int64_t kLength = 12;
constexpr int64_t kBatch = 8;

/// Odd sizes, with dropout everywhere.
model::ModelConfig small_gpt2() {
  return model::parse_model_config(
      R"({"model_type": "gpt2", "vocab_size": 101, "n_embd": 24, "n_layer": 2, "n_head": 3,
          "n_positions": 16, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1})",
      "small_gpt2");
}

/// A model and its process groups.
struct ModelOnRanks {
  ParallelGroups axes;
  std::unique_ptr<ParallelModel> model;
  ModelOnRanks(
      std::unique_ptr<nn::LanguageModel> whole,
      const Plan& plan,
      Communicator& group,
      objective::ObjectivePointer objective)
      : axes(group, {.data = group.size()}),
        model(parallelize(std::move(whole), plan, axes, std::move(objective))) {}
  ParallelModel* operator->() const { return model.get(); }
};

ModelOnRanks make(
    Communicator& group,
    int64_t accumulation,
    at::ScalarType type = at::kFloat,
    objective::ObjectivePointer objective = objective::cross_entropy()) {
  auto model = nn::make_model(small_gpt2(), type, at::kCPU);
  nn::initialize(*model, 3);
  Plan plan;
  plan.optimizer.weight_decay = 0.1;
  plan.accumulation_steps = accumulation;
  plan.bucket_megabytes = 0.01;
  return {std::move(model), plan, group, std::move(objective)};
}

/// Rows [begin, end) of a step's global batch. In every third row half of the labels are masked, so
/// that ranks have different numbers of targets.
nn::ForwardInputs rows(int64_t step, int64_t begin, int64_t end) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 + static_cast<uint64_t>(step));
  const Tensor ids = torch::empty({kBatch, kLength}, torch::kLong).random_(0, 10, generator);
  Tensor labels = ids.clone();
  for (int64_t row = 0; row < kBatch; row += 3) {
    labels.index_put_({row, torch::indexing::Slice(0, kLength / 2)}, -100);
  }
  nn::ForwardInputs inputs;
  inputs.ids = ids.slice(0, begin, end);
  inputs.targets = nn::next_tokens(labels.slice(0, begin, end));
  inputs.samples = torch::arange(step * kBatch + begin, step * kBatch + end);
  inputs.seed = 5;
  inputs.step = step;
  inputs.training = true;
  return inputs;
}

int64_t target_tokens() {
  return rows(0, 0, kBatch).targets.counts.sum().item<int64_t>();
}

/// Returns the losses of `steps` steps on `ranks` ranks with `accumulation` micro-batches each.
std::vector<double> losses_of(int ranks, int64_t accumulation, int64_t steps) {
  std::vector<double> losses;
  comm::run_ranks(ranks, [&](Communicator& group) {
    const auto model = make(group, accumulation);
    const int64_t cells = ranks * accumulation, part = kBatch / cells;
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<nn::ForwardInputs> inputs;
      for (int64_t m = 0; m < accumulation; ++m) {
        const int64_t begin = (group.rank() * accumulation + m) * part;
        inputs.push_back(rows(step, begin, begin + part));
      }
      const StepResult result = model->forward_backward(inputs, target_tokens());
      model->optimizer_step(1e-3);
      if (group.rank() == 0) {
        losses.push_back(result.loss);
      }
    }
  });
  return losses;
}

TEST(ParallelModel, LearnsTheSameOnAnyNumberOfRanksDropoutIncluded) {
  const auto one = losses_of(1, 1, 20);
  EXPECT_LT(one.back(), one.front());
  for (const auto& [ranks, accumulation] :
       std::vector<std::pair<int, int64_t>>{{2, 1}, {4, 1}, {2, 2}, {1, 4}}) {
    const auto other = losses_of(ranks, accumulation, 20);
    ASSERT_EQ(other.size(), one.size());
    for (size_t step = 0; step < one.size(); ++step) {
      numbers::expect_loss(
          other[step],
          one[step],
          fmt::format("{} ranks, {} micro-batches, step {}", ranks, accumulation, step));
    }
  }
}

TEST(ParallelModel, EveryElementOfTheStateIsOwnedByOneRank) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::map<std::string, std::vector<int>> owners;
    std::mutex mutex;
    comm::run_ranks(3, [&](Communicator& group) {
      const auto model = make(group, 1, type);
      model->visit_state([&](const StateSlice& slice) {
        const std::scoped_lock lock(mutex);
        int64_t elements = 1;
        for (const int64_t dim : slice.shape) {
          elements *= dim;
        }
        auto& counts = owners[slice.file_group + ":" + slice.name];
        counts.resize(static_cast<size_t>(elements));
        for (int64_t i = slice.owned_begin; i < slice.owned_end; ++i) {
          ++counts[static_cast<size_t>(slice.begin + i)];
        }
      });
    });
    EXPECT_TRUE(owners.contains("model:transformer.wte.weight"));
    EXPECT_TRUE(owners.contains("optimizer:exp_avg.transformer.h.1.mlp.c_fc.bias"));
    EXPECT_EQ(owners.contains("optimizer:master.transformer.wte.weight"), type == at::kBFloat16);
    for (const auto& [name, counts] : owners) {
      for (const int count : counts) {
        ASSERT_EQ(count, 1) << name;
      }
    }
  }
}

TEST(ParallelModel, TellsWhichGradientIsNotFinite) {
  Communicator alone = Communicator::alone();
  const auto model = make(alone, 1);
  model->model().visit_parameters([](const std::string& name, Tensor& tensor) {
    if (name == "transformer.h.1.ln_2.weight") {
      const at::NoGradGuard no_grad;
      tensor.fill_(std::numeric_limits<float>::quiet_NaN());
    }
  });
  const std::vector<nn::ForwardInputs> inputs{rows(0, 0, kBatch)};
  try {
    (void)model->forward_backward(inputs, target_tokens());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
    EXPECT_NE(error.message().find("transformer."), std::string::npos) << error.what();
  }
}

TEST(ParallelModel, TrainsInBfloat16WithFloat32Masters) {
  Communicator alone = Communicator::alone();
  const auto model = make(alone, 2, at::kBFloat16);
  std::vector<double> losses;
  for (int64_t step = 0; step < 30; ++step) {
    const std::vector<nn::ForwardInputs> inputs{rows(0, 0, 4), rows(0, 4, kBatch)};
    losses.push_back(model->forward_backward(inputs, target_tokens()).loss);
    model->optimizer_step(1e-2);
  }
  EXPECT_LT(losses.back(), 0.7 * losses.front());
}

/// Returns the number of passes that had completed when the step's counts were requested.
int passes_before_counts(at::ScalarType type) {
  Communicator alone = Communicator::alone();
  const auto model = make(alone, 2, type);
  const std::vector<nn::ForwardInputs> inputs{rows(0, 0, 4), rows(0, 4, kBatch)};
  int passes = 0, before = -1;
  model->pipeline().set_observer([&](const ActionTimes&) { ++passes; });
  const objective::Counts counts(static_cast<double>(target_tokens()));
  const StepResult result = model->forward_backward(inputs, [&]() -> const objective::Counts& {
    before = passes;
    return counts;
  });
  EXPECT_EQ(result.loss, model->forward_backward(inputs, counts).loss);
  EXPECT_EQ(before == 0, model->needs_counts_first());
  return before;
}

TEST(ParallelModel, WaitsForTheStepsCountsBehindItsPasses) {
  EXPECT_EQ(passes_before_counts(at::kFloat), 4);
  EXPECT_EQ(passes_before_counts(at::kBFloat16), 4);
  EXPECT_EQ(passes_before_counts(at::kHalf), 0);
  Communicator alone = Communicator::alone();
  EXPECT_TRUE(
      make(alone, 1, at::kFloat, objective::simple_negative_preference())->needs_counts_first());
}

TEST(ParallelModel, AWholeModelIsTrainedUnderDataParallelismAlone) {
  comm::run_ranks(2, [](Communicator& group) {
    ParallelGroups axes(group, {.tensor = 2});
    try {
      (void)parallelize(nn::make_model(small_gpt2(), at::kFloat, at::kCPU), {}, axes);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    }
  });
}

}  // namespace parallel_model_test
}  // namespace lockstep::parallel
