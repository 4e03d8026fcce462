// Tests of pipelines: schedules, tied weights, messages and statistics.
#include "parallel/pipeline/pipeline.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "base/format.h"
#include "comm/threads.h"
#include "nn/initialize.h"
#include "numbers.h"
#include "parallel/pipeline/tied.h"
#include "temporary_folder.h"

namespace lockstep::parallel {
namespace pipeline_test {

using comm::Communicator;

constexpr int64_t kLength = 9;
constexpr int64_t kRows = 7;  // rows per step, in micro-batches of 2, 2, 2 and 1
constexpr int64_t kMicroBatch = 2;
constexpr int kSteps = 3;

/// Nine layers, which is not divisible by 2 or 4 stages, and a prime vocabulary size.
model::ModelConfig config_of(const std::string& family) {
  const bool tied = family == "tied llama";
  const std::string text =
      family == "gpt2"
          ? R"({"model_type": "gpt2", "vocab_size": 101, "n_embd": 24, "n_layer": 9, "n_head": 3,
                "n_positions": 16, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1})"
          : R"({"model_type": "llama", "vocab_size": 101, "hidden_size": 24, "intermediate_size": 40,
                "num_hidden_layers": 9, "num_attention_heads": 4, "num_key_value_heads": 2,
                "head_dim": 6, "max_position_embeddings": 16, "tie_word_embeddings": )" +
                std::string(tied ? "true}" : "false}");
  return model::parse_model_config(text, family);
}

/// Rows [begin, end) of a step's batch. In every third row half of the labels are masked.
nn::ForwardInputs rows(int64_t step, int64_t begin, int64_t end) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(100 + static_cast<uint64_t>(step));
  const Tensor ids = torch::empty({kRows, kLength}, torch::kLong).random_(0, 10, generator);
  Tensor labels = ids.clone();
  for (int64_t row = 0; row < kRows; row += 3) {
    labels.index_put_({row, torch::indexing::Slice(0, kLength / 2)}, -100);
  }
  nn::ForwardInputs inputs;
  inputs.ids = ids.slice(0, begin, end);
  inputs.targets = nn::next_tokens(labels.slice(0, begin, end));
  inputs.samples = torch::arange(step * kRows + begin, step * kRows + end);
  inputs.seed = 5;
  inputs.step = step;
  inputs.training = true;
  return inputs;
}

/// Rows [begin, end) split into micro-batches.
std::vector<nn::ForwardInputs> micro_batches(int64_t step, int64_t begin, int64_t end) {
  std::vector<nn::ForwardInputs> result;
  for (; begin < end; begin += kMicroBatch) {
    result.push_back(rows(step, begin, std::min(begin + kMicroBatch, end)));
  }
  return result;
}

int64_t target_tokens() {
  return rows(0, 0, kRows).targets.counts.sum().item<int64_t>();
}

/// A rank's stages with a simple optimizer.
class Trainer {
 public:
  Trainer(const model::ModelConfig& config, const PipelineOptions& options, Communicator& world)
      : world_(world),
        is_tied_(config.tie_word_embeddings),
        embedding_(model::embedding_name(config)) {
    std::vector<nn::LanguageModel*> models;
    for (const nn::ModelPart& part :
         parts_of_rank(config, options, world.rank(), world.size(), kLength)) {
      parts_.push_back(nn::make_model(config, at::kFloat, at::kCPU, part));
      nn::initialize(*parts_.back(), 3);
      models.push_back(parts_.back().get());
    }
    std::vector<Accumulation> accumulations;
    for (nn::LanguageModel* model : models) {
      accumulations.push_back({[](bool) {}, [] {}, apply_deferral(*model, options, world.size())});
    }
    pipeline_ = std::make_unique<Pipeline>(models, accumulations, options, world);
  }

  /// Returns the mean loss on every rank; leaves gradients in the parameters.
  double forward_backward(int64_t step) {
    const auto batch = micro_batches(step, 0, kRows);
    const auto tokens = static_cast<double>(target_tokens());
    Tensor loss = pipeline_->forward_backward(batch, tokens, 1 / tokens)[0];
    world_.all_reduce(loss).wait();
    sum_tied();
    return loss.item<double>() / tokens;
  }
  void update() {
    const at::NoGradGuard no_grad;
    visit([](const std::string&, Tensor& parameter) {
      parameter.sub_(parameter.grad(), 0.3);
      parameter.mutable_grad().reset();
    });
  }
  std::vector<double> statistics(int64_t step) {
    auto batch = micro_batches(step, 0, kRows);
    for (nn::ForwardInputs& inputs : batch) {
      inputs.training = false;
    }
    Tensor sums = pipeline_->statistics(batch).clone();
    world_.all_reduce(sums).wait();
    return {sums.data_ptr<double>(), sums.data_ptr<double>() + sums.numel()};
  }
  void visit(const std::function<void(const std::string&, Tensor&)>& function) {
    for (const auto& part : parts_) {
      part->visit_parameters(function);
    }
  }
  Pipeline& pipeline() { return *pipeline_; }

 private:
  void sum_tied() {
    if (!is_tied_ || pipeline_->schedules().stages() == 1) {
      return;
    }
    Tensor first, last;
    for (const auto& part : parts_) {
      part->visit_parameters([&](const std::string& name, Tensor& parameter) {
        if (name == embedding_) {
          (part->part().embedding ? first : last) = parameter.grad();
        }
      });
    }
    const Schedules& schedules = pipeline_->schedules();
    sum_tied_gradients(
        first, last, schedules.rank_of(0), schedules.rank_of(schedules.stages() - 1), world_);
  }

  Communicator& world_;
  bool is_tied_;
  std::string embedding_;
  std::vector<std::unique_ptr<nn::LanguageModel>> parts_;
  std::unique_ptr<Pipeline> pipeline_;
};

/// Results of a run: losses and gradients of each step, and the final statistics.
struct Outcome {
  std::vector<double> losses;
  std::map<std::string, Tensor> gradients;  // "step/name"
  std::vector<double> statistics;
};

/// Trains on `ranks` pipeline ranks. Losses must be equal on every rank.
Outcome train(const model::ModelConfig& config, const PipelineOptions& options, int ranks) {
  Outcome run;
  std::mutex mutex;
  comm::run_ranks(ranks, [&](Communicator& world) {
    Trainer trainer(config, options, world);
    Outcome own;
    for (int64_t step = 0; step < kSteps; ++step) {
      own.losses.push_back(trainer.forward_backward(step));
      trainer.visit([&](const std::string& name, Tensor& parameter) {
        const std::scoped_lock lock(mutex);
        const Tensor gradient = parameter.grad().clone();
        const auto [found, is_new] =
            run.gradients.emplace(fmt::format("{}/{}", step, name), gradient);
        // Tied weights have bit-identical gradients.
        EXPECT_TRUE(is_new || torch::equal(found->second, gradient)) << name;
      });
      trainer.update();
    }
    own.statistics = trainer.statistics(kSteps);
    const std::scoped_lock lock(mutex);
    EXPECT_TRUE(run.losses.empty() || run.losses == own.losses);
    run.losses = own.losses;
    run.statistics = own.statistics;
  });
  return run;
}

void expect_same(const Outcome& run, const Outcome& expected, const std::string& what) {
  ASSERT_EQ(run.losses.size(), expected.losses.size()) << what;
  for (size_t step = 0; step < run.losses.size(); ++step) {
    numbers::expect_loss(
        run.losses[step], expected.losses[step], fmt::format("{}, step {}", what, step));
  }
  numbers::expect_gradients(run.gradients, expected.gradients, what);
  EXPECT_NEAR(run.statistics[0], expected.statistics[0], 1e-3) << what;
  EXPECT_EQ(run.statistics[1], expected.statistics[1]) << what;
}

struct PlanCase {
  const char* schedule;
  int virtual_stages;
};
constexpr PlanCase kSchedules[] = {
    {"naive", 1},
    {"gpipe", 1},
    {"1f1b", 1},
    {"interleaved", 2},
    {"zb-h1", 1},
    {"zb-h2", 1},
    {"zb-v", 1}};

class Families : public ::testing::TestWithParam<const char*> {};

TEST_P(Families, EverySchedulesLossesAndGradientsAreThoseOfOneRank) {
  const model::ModelConfig config = config_of(GetParam());
  const Outcome one = train(config, {}, 1);
  EXPECT_LT(one.losses.back(), one.losses.front());
  const std::map<std::string, std::vector<int>> sizes_of{
      {"gpt2", {2, 4}}, {"llama", {3}}, {"tied llama", {2}}};
  for (const PlanCase& plan : kSchedules) {
    for (const int ranks : sizes_of.at(GetParam())) {
      const Outcome run =
          train(config, {.schedule = plan.schedule, .virtual_stages = plan.virtual_stages}, ranks);
      expect_same(run, one, fmt::format("{} on {} ranks", plan.schedule, ranks));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Pipeline, Families, ::testing::Values("gpt2", "llama", "tied llama"), [](const auto& info) {
      std::string name = info.param;
      std::replace(name.begin(), name.end(), ' ', '_');
      return name;
    });

TEST(Pipeline, OneRankMayHoldSeveralStages) {
  const model::ModelConfig config = config_of("gpt2");
  const Outcome one = train(config, {}, 1);
  expect_same(train(config, {.schedule = "interleaved", .virtual_stages = 3}, 1), one, "3 on 1");
  expect_same(train(config, {.schedule = "interleaved", .virtual_stages = 4}, 2), one, "8 on 2");
  expect_same(train(config, {.schedule = "zb-v"}, 1), one, "V on 1");
  expect_same(train(config, {.schedule = "zb-h1"}, 1), one, "split backward on 1");
}

TEST(Pipeline, StagesByHandMayHoldTheEmbeddingOrTheHeadAlone) {
  const model::ModelConfig config = config_of("tied llama");
  expect_same(
      train(config, {.schedule = "zb-h1", .split = "0,9,0"}, 3), train(config, {}, 1), "0,9,0");
}

TEST(Pipeline, RunsAScheduleOfAFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "actions.txt";
  // Combined and split backward passes; stage 1 uses a different micro-batch order than stage 0.
  std::ofstream(path) << "0F0 0F1 0F2 0F3 0I0 0W0 0B1 0I2 0I3 0W3 0W2\n"
                         "1F1 1F0 1B0 1I1 1W1 1F2 1F3 1B2 1I3 1W3\n";
  const model::ModelConfig config = config_of("gpt2");
  expect_same(train(config, {.schedule = path.string()}, 2), train(config, {}, 1), "file");
}

TEST(Pipeline, AShortStepTakesTheFirstMicroBatchesOfAFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "actions.txt";
  std::ofstream(path) << "0F0 0F1 0F2 0B0 0B1 0B2\n1F0 1F1 1F2 1B0 1B1 1B2\n";
  Schedules schedules({.schedule = path.string()}, 2);
  EXPECT_EQ(schedules.of(2).actions[1].size(), 4U);
  EXPECT_THROW(schedules.of(4), Error);
  EXPECT_THROW(Schedules({.schedule = path.string()}, 3), Error);
}

TEST(Pipeline, AStageThatDiesIsNamedByItsNeighbours) {
  const model::ModelConfig config = config_of("gpt2");
  std::map<int, std::string> told;
  std::mutex mutex;
  const auto run = [&] {
    comm::run_ranks(3, [&](Communicator& world) {
      Trainer trainer(config, {}, world);
      (void)trainer.forward_backward(0);
      if (world.rank() == 1) {
        trainer.pipeline().set_observer([](const ActionTimes& times) {
          if (times.action.micro_batch == 2) {
            throw std::runtime_error("the end of rank 1");
          }
        });
      }
      try {
        (void)trainer.forward_backward(1);
      } catch (const Error& error) {
        const std::scoped_lock lock(mutex);
        told[world.rank()] = error.message();
        EXPECT_EQ(error.kind(), ErrorKind::kPeerLost) << error.what();
      }
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
  ASSERT_EQ(told.size(), 2U);
  for (const int rank : {0, 2}) {
    EXPECT_NE(told[rank].find("pipeline rank 1 is unreachable"), std::string::npos) << told[rank];
  }
}

TEST(Pipeline, SendsActivationsAndTheirGradientsAndNothingElse) {
  const model::ModelConfig config = config_of("llama");
  comm::run_ranks(3, [&](Communicator& world) {
    Trainer trainer(config, {}, world);
    std::vector<int64_t> bytes;  // bytes sent or received per step
    for (int64_t step = 0; step < 2; ++step) {
      int64_t sum = 0;
      world.set_observer(
          [&](const comm::Call& call) { sum += call.operation == "exchange" ? call.bytes : 0; });
      (void)trainer.forward_backward(step);
      bytes.push_back(sum);
    }
    world.set_observer(nullptr);
    const int64_t activations = kRows * kLength * config.hidden_size * 4;  // [B, T, C], float32
    const int64_t boundaries = world.rank() == 1 ? 2 : 1;
    EXPECT_EQ(bytes[1], 2 * boundaries * activations);  // forward and back
    EXPECT_GT(bytes[0], bytes[1]);                      // the first step also sends shapes
  });
}

}  // namespace pipeline_test
}  // namespace lockstep::parallel
