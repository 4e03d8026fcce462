// Tests of ZeRO: losses, communication volume and memory of each stage.
#include <algorithm>
#include <array>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"
#include "numbers.h"
#include "parallel/data/data_parallel.h"
#include "parallel/training.h"

namespace lockstep::parallel {
namespace zero_test {

using comm::Communicator;
using namespace testing;

TEST(Zero, EveryStageOnAnyNumberOfRanksTrainsAsOneRankDoes) {
  for (const model::ModelConfig& config : {tied_config(), untied_config()}) {
    const Outcome one = train({.config = config, .plan = small_plan()});
    for (const int stage : {0, 1, 2, 3}) {
      for (const int ranks : {1, 2, 3, 4}) {
        for (const int64_t micro_batches : {1, 2}) {
          const TrainingRun run{config, small_plan(stage, micro_batches), ranks};
          expect_equal(train(run), one, 1e-5, run.name());
        }
      }
    }
  }
}

TEST(Zero, Bfloat16StagesEqualEachOtherAndStandNearOneRank) {
  TrainingRun run{.plan = small_plan(), .type = at::kBFloat16};
  const Outcome one = train(run);
  run.ranks = 3;
  for (const int stage : {0, 1, 2, 3}) {
    run.plan = small_plan(stage, 2);
    const Outcome other = train(run);
    expect_equal(other, one, 6e-2, run.name());
  }
}

TEST(Zero, SettingsOfTheEngineDoNotShowInTheResult) {
  const Outcome one = train({.plan = small_plan()});
  TrainingRun run{.plan = small_plan(3, 2), .ranks = 3};
  for (const int64_t prefetch : {0, 1, 5}) {
    for (const int64_t persistence : {0, 100, 1'000'000}) {
      run.plan.prefetch_units = prefetch;
      run.plan.persistence_threshold = persistence;
      expect_equal(
          train(run), one, 1e-5, fmt::format("prefetch {}, persistence {}", prefetch, persistence));
    }
  }
  run.plan = small_plan(3, 2);
  for (const int64_t elements : {0, 1, 100'000}) {
    run.plan.prefetch_elements = elements;
    expect_equal(train(run), one, 1e-5, fmt::format("{} elements ahead", elements));
  }
  run.plan = small_plan(2, 2);
  for (const double megabytes : {0.0, 0.02, 25.0}) {
    run.plan.bucket_megabytes = megabytes;
    expect_equal(train(run), one, 1e-5, fmt::format("buckets of {} MB", megabytes));
  }
}

TEST(Zero, GoesOnFromAStateOfAnotherStageAndNumberOfRanks) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kFloat ? 1e-5 : 3e-2;
    const Outcome whole = train({.plan = small_plan(), .type = type, .steps = 8});
    for (const auto& [from_stage, from_ranks, to_stage, to_ranks] : std::vector<std::array<int, 4>>{
             {0, 2, 3, 3}, {3, 3, 1, 2}, {1, 4, 2, 1}, {2, 2, 0, 3}, {3, 4, 3, 2}}) {
      const Outcome first =
          train({.plan = small_plan(from_stage), .ranks = from_ranks, .type = type, .steps = 4});
      for (const auto& [name, tensor] : first.state) {
        EXPECT_FALSE(tensor.isnan().any().item<bool>()) << name << " is not all there";
      }
      const Outcome second = train(
          {.plan = small_plan(to_stage),
           .ranks = to_ranks,
           .type = type,
           .steps = 4,
           .first_step = 4},
          first.state);
      for (size_t step = 0; step < 4; ++step) {
        EXPECT_NEAR(second.losses[step], whole.losses[step + 4], tolerance * whole.losses[step])
            << "from stage " << from_stage << " to " << to_stage;
      }
    }
  }
}

TEST(Zero, EveryOptimizerIsShardedAndGoesOnFromAnotherPlan) {
  model::ModelConfig config = tied_config();
  for (const char* optim : {"sgd", "lion_32bit", "adafactor", "adamw_8bit"}) {
    const auto setup_of = [&](int stage, int ranks, int64_t steps, int64_t first = 0) {
      TrainingRun run{config, small_plan(stage), ranks, at::kFloat, steps, first};
      run.plan.optimizer.optim = optim;
      return run;
    };
    // Adafactor and Lion divide by, or take the sign of, values near zero, so the order of float32
    // sums matters.
    const double tolerance = std::string_view(optim) == "sgd" ? 1e-5 : 2e-3;
    const Outcome one = train(setup_of(0, 1, 8));
    for (const auto& [stage, ranks] :
         std::vector<std::pair<int, int>>{{0, 2}, {1, 3}, {2, 2}, {3, 4}}) {
      expect_equal(
          train(setup_of(stage, ranks, 8)),
          one,
          tolerance,
          fmt::format("{} in stage {}", optim, stage));
      const Outcome first = train(setup_of(stage, ranks, 4));
      const Outcome second = train(setup_of((stage + 1) % 4, 3, 4, 4), first.state);
      for (size_t step = 0; step < 4; ++step) {
        EXPECT_NEAR(second.losses[step], one.losses[step + 4], tolerance * one.losses[step])
            << optim << " from stage " << stage;
      }
    }
  }
}

/// Returns the bytes that a rank sends per step (Rajbhandari et al., 2020, section 7): (N - 1) / N
/// of the gradients and of the gathered parameters. Units are gathered twice, with two exceptions:
/// the embedding's backward pass needs no values, and the head stays gathered from its forward to
/// its backward pass.
int64_t bytes_of_theory(ParallelModel& model, const TrainingRun& run) {
  int64_t gradients = 0, parameters = 0;
  const auto& flats = model.data_parallel().flats();
  for (const FlatUnit& flat : flats) {
    const auto size = static_cast<int64_t>(flat.size() * c10::elementSize(run.type));
    // A tied table stays gathered from the embedding to the head, whose backward pass comes next.
    const bool once = flat.name == "head" || flat.name == "embedding";
    gradients += size;
    parameters += once || run.plan.zero_stage < 3 ? size : 2 * size;
  }
  const auto part = [&](int64_t bytes) { return bytes / run.ranks * (run.ranks - 1); };
  return run.plan.zero_stage == 0 ? 2 * gradients * (run.ranks - 1) / run.ranks
                                  : part(gradients) + part(parameters);
}

TEST(Zero, SendsTheBytesOfTheory) {
  for (const model::ModelConfig& config : {tied_config(), untied_config()}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const int stage : {0, 1, 2, 3}) {
        for (const int ranks : {2, 3, 4}) {
          TrainingRun run{config, small_plan(stage), ranks, type};
          run.plan.bucket_megabytes = 0;
          comm::run_ranks(ranks, [&](Communicator& group) {
            const auto model = make_parallel(run, group);
            int64_t sent = 0;
            const auto step = [&](int64_t number) {
              sent = 0;
              run_step(*model, run, group, number);
              model->optimizer_step(1e-3);
            };
            // Excludes the objective's sums and the norm.
            const int64_t small = model->objective().sums() * static_cast<int64_t>(sizeof(double));
            group.set_observer(
                [&](const comm::Call& call) { sent += call.bytes > small ? call.bytes_sent : 0; });
            step(0);
            step(1);
            EXPECT_NEAR(
                static_cast<double>(sent),
                static_cast<double>(bytes_of_theory(*model, run)),
                static_cast<double>(model->data_parallel().flats().size()))
                << run.name();
            int64_t elements = 0;
            for (const FlatUnit& flat : model->data_parallel().flats()) {
              elements += flat.size() - ranks;
            }
            EXPECT_LT(
                elements,
                model::parameter_count(run.config));  // padding: < 1 element per rank and unit
          });
        }
      }
    }
  }
}

TEST(Zero, SendsOnceAStepInStage1AndOnceAMicroBatchInStages2And3) {
  for (const int stage : {1, 2, 3}) {
    const TrainingRun run{.plan = small_plan(stage, 2), .ranks = 2};
    comm::run_ranks(2, [&](Communicator& group) {
      const auto model = make_parallel(run, group);
      int64_t reductions = 0;
      group.set_observer([&](const comm::Call& call) {
        reductions += call.operation == "reduce_scatter" ? 1 : 0;
      });
      run_step(*model, run, group, 0);
      const auto units = static_cast<int64_t>(model->data_parallel().flats().size());
      EXPECT_EQ(reductions, stage == 1 ? units : 2 * units);
    });
  }
}

/// Returns the bytes of parameters, gradients and optimizer state of a rank between two steps.
int64_t bytes_of_states(ParallelModel& model) {
  int64_t bytes = 0;
  const auto add = [&](const Tensor& tensor) {
    bytes += tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  };
  int64_t index = 0;
  for (const FlatUnit& flat : model.data_parallel().flats()) {
    bytes += static_cast<int64_t>(flat.full.storage().nbytes());
    if (!flat.persistent) {
      add(flat.shard);
    }
    add(flat.gradient.defined() ? flat.gradient : flat.shard_gradient);
    if (!model.optimizer().shard(index).master.is_same(flat.shard)) {
      add(model.optimizer().shard(index).master);
    }
    model.optimizer().visit_state(index, [&](const optim::StatePiece& piece) { add(piece.data); });
    ++index;
  }
  return bytes;
}

TEST(Zero, HoldsTheMemoryOfTheory) {
  constexpr int kRanks = 4;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    // Bytes per parameter of values, gradients and optimizer state.
    const double values = type == at::kFloat ? 4 : 2, optimizer = type == at::kFloat ? 8 : 12;
    for (const int stage : {0, 1, 2, 3}) {
      TrainingRun run{.plan = small_plan(stage), .ranks = kRanks, .type = type};
      run.plan.prefetch_units = 0;
      comm::run_ranks(kRanks, [&](Communicator& group) {
        const auto model = make_parallel(run, group);
        const auto& gathers = model->data_parallel().gathers();
        const auto parameters = static_cast<double>(model::parameter_count(run.config));
        if (stage == 3) {  // stage 3 never has the whole model
          EXPECT_NEAR(static_cast<double>(gathers.live_bytes()), parameters * values / kRanks, 200);
        }
        run_step(*model, run, group, 0);
        model->optimizer_step(1e-3);
        const double theory =
            parameters * (values / (stage >= 3 ? kRanks : 1) + values / (stage >= 2 ? kRanks : 1) +
                          optimizer / (stage >= 1 ? kRanks : 1));
        EXPECT_NEAR(static_cast<double>(bytes_of_states(*model)), theory, 0.05 * theory)
            << run.name();
        if (stage == 3) {  // shards plus the largest unit
          int64_t largest = 0;
          for (const FlatUnit& flat : model->data_parallel().flats()) {
            largest = std::max(
                largest, flat.full.numel() * static_cast<int64_t>(flat.full.element_size()));
          }
          EXPECT_LE(
              gathers.peak_bytes(),
              static_cast<int64_t>(parameters * values / kRanks) + largest + 200);
        }
      });
    }
  }
}

TEST(Zero, AsksTheSourceForItsOwnShardAlone) {
  TrainingRun run{.plan = small_plan(3)};
  std::mutex mutex;
  std::map<std::string, std::vector<int>> asked;
  comm::run_ranks(3, [&](Communicator& group) {
    const auto fill = fill_at_random(run.config, 3);
    const ModelOnRanks model(
        run,
        group,
        [&](const std::string& name,
            const ShardedParameter& parameter,
            int64_t begin,
            const Tensor& out) {
          fill(name, parameter, begin, out);
          const std::scoped_lock lock(mutex);
          auto& counts = asked[name];
          counts.resize(std::max(counts.size(), static_cast<size_t>(begin + out.numel())));
          for (int64_t i = begin; i < begin + out.numel(); ++i) {
            ++counts[static_cast<size_t>(i)];
          }
        });
  });
  for (const model::ParameterSpec& spec : model::parameters_of(run.config)) {
    EXPECT_EQ(asked[spec.name], std::vector<int>(static_cast<size_t>(spec.elements()), 1))
        << spec.name;
  }
}

/// Units with one element, with fewer elements than ranks, with two types, and a frozen unit.
struct Odds {
  Tensor one = torch::full({1}, 0.5).requires_grad_();
  Tensor two = torch::tensor({0.3, -0.7}).requires_grad_();
  Tensor frozen = torch::tensor({1.1, 0.9, 1.3, 0.7, 1.2});
  Tensor low = torch::tensor({0.25, 0.5, -0.75}).to(at::kBFloat16).requires_grad_();

  std::vector<ParameterUnit> units() const {
    return {
        {"one", {{"one", one}}},
        {"two", {{"two", two, {.weight_decay = 0}}, {"frozen", frozen}}},
        {"low", {{"low", low}}}};
  }
  /// x [n, 5] float32
  Tensor loss(const Tensor& x, DataParallel* engine) const {
    const auto run =
        [&](size_t unit, const Tensor& in, const std::function<Tensor(const Tensor&)>& body) {
          return engine != nullptr ? engine->run_unit(unit, in, body) : body(in);
        };
    Tensor y = run(0, x, [&](const Tensor& in) { return (in * one).tanh(); });
    y = run(1, y, [&](const Tensor& in) { return in * frozen * two[0] + two[1]; });
    return run(2, y, [&](const Tensor& in) {
      return (in.slice(1, 0, 3) * low.to(at::kFloat)).square().sum();
    });
  }
};

TEST(Zero, TakesTinyFrozenAndMixedParameters) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  const Tensor data = torch::empty({8, 5}).normal_(0, 1, generator);
  const Odds plain;
  plain.loss(data, nullptr).backward();
  const std::map<std::string, Tensor> expected{
      {"one", plain.one.grad()}, {"two", plain.two.grad()}, {"low", plain.low.grad()}};
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 3, 4}) {
      comm::run_ranks(ranks, [&](Communicator& group) {
        const Odds odds;
        DataParallelOptions options;
        options.zero_stage = stage;
        options.gradient_type = at::kFloat;
        options.alignment = 2;
        DataParallel engine(group, odds.units(), options);
        for (int repeat = 0; repeat < 2; ++repeat) {
          engine.begin_step();
          engine.begin_micro_batch(true);
          odds.loss(data.tensor_split(ranks)[static_cast<size_t>(group.rank())], &engine)
              .backward();
          engine.end_micro_batch();
          engine.finish();
          for (const FlatUnit& flat : engine.flats()) {
            for (const optim::Segment& segment : flat.shard_layout()) {
              if (!flat.trainable || segment.count == 0) {
                continue;
              }
              const Tensor part = flat.shard_gradient.narrow(0, segment.offset, segment.count);
              const Tensor whole = expected.at(segment.parameter).to(at::kFloat);
              numbers::expect_values(
                  part,
                  whole.narrow(0, segment.begin, segment.count),
                  fmt::format("{} in stage {} on {}", segment.parameter, stage, ranks),
                  flat.name == "low" ? 1e-2 : numbers::kRule,
                  numbers::largest(whole));
            }
          }
          engine.parameters_changed();
        }
      });
    }
  }
}

TEST(Zero, ARankThatStraysFromTheOrderOfTheUnitsIsToldWhich) {
  Communicator alone = Communicator::alone();
  const Odds odds;
  DataParallelOptions options;
  options.zero_stage = 3;
  DataParallel engine(alone, odds.units(), options);
  const auto same = [](const Tensor& x) { return x; };
  engine.run_unit(0, torch::ones({1}), same);
  try {
    engine.run_unit(2, torch::ones({1}), same);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("the unit low in its forward pass after one"), std::string::npos)
        << error.what();
  }
}

TEST(Zero, FailsWhereARankIsGoneAndDoesNotHang) {
  const TrainingRun run{.plan = small_plan(3), .ranks = 3};
  try {
    comm::run_ranks(3, [&](Communicator& group) {
      const auto model = make_parallel(run, group);
      if (group.rank() == 1) {
        return;
      }
      run_step(*model, run, group, 0);
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kPeerLost) << error.what();
    EXPECT_NE(error.message().find("all_gather"), std::string::npos) << error.what();
  }
}

}  // namespace zero_test
}  // namespace lockstep::parallel
