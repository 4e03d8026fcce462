// Tests that the gradient norm accumulated during writes and reductions equals the norm of a
// separate pass.
#include "parallel/data/grad_norm_accumulator.h"

#include <mutex>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "comm/threads.h"
#include "optim/gradient_norm.h"
#include "parallel/data/data_parallel.h"

namespace lockstep::parallel {
namespace gradient_squares_test {

using comm::Communicator;

/// A large matrix, small parameters, one that only some micro-batches use, one in a unit of its
/// own.
struct Parts {
  Tensor large, small, rare, alone;

  explicit Parts(at::ScalarType type) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
    const auto make = [&](at::IntArrayRef sizes) {
      return torch::empty(sizes).normal_(0, 0.2, generator).to(type).requires_grad_();
    };
    large = make({301, 257});
    small = make({257});
    rare = make({3});
    alone = make({5, 1});
  }
  Tensor loss(int cell, bool uses_rare) const {
    const Tensor row = large[cell * 7].add(large.sum(0), 0.1);
    const Tensor loss = (row * small).sum().square() + (alone * (cell + 1)).sum();
    return uses_rare ? loss + (rare * rare).sum() : loss;
  }
  std::vector<ParameterUnit> units() const {
    return {
        {"first", {{"large", large}, {"small", small, {.weight_decay = 0}}}},
        {"second", {{"rare", rare}, {"alone", alone, {}, true}}}};
  }
};

struct Way {
  int ranks, micro_batches;
  DataParallelOptions options;
  at::ScalarType type = at::kFloat;
};

/// Returns the accumulated sum of squares and that of a separate pass, over all ranks.
std::pair<double, double> counted_and_found(const Way& way, const ShareOfParameter& share) {
  double counted = 0, found = 0;
  std::mutex mutex;
  comm::run_ranks(way.ranks, [&](Communicator& group) {
    const Parts parts(way.type);
    DataParallelOptions options = way.options;
    options.counts_squares = true;
    options.share_of_squares = share;
    DataParallel engine(group, parts.units(), options);
    for (int step = 0; step < 2; ++step) {  // the second step starts from zero
      engine.begin_step();
      for (int m = 0; m < way.micro_batches; ++m) {
        engine.gather_all();
        engine.begin_micro_batch(m + 1 == way.micro_batches);
        parts.loss(group.rank() * way.micro_batches + m, m == 0).backward();
        engine.end_micro_batch();
      }
      engine.finish();
    }
    double own = 0;
    for (const FlatUnit& flat : engine.flats()) {
      for (const optim::Segment& segment : flat.shard_layout()) {
        const Tensor part = flat.shard_gradient.narrow(0, segment.offset, segment.count);
        own += share(segment.parameter) * optim::squared_norm(part) /
               (flat.replicated ? group.size() : 1);
      }
    }
    const std::scoped_lock lock(mutex);
    counted += engine.squared_gradients().item<double>();
    found += own;
  });
  return {counted, found};
}

TEST(GradNormAccumulator, AreThoseThatAPassFinds) {
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int micro_batches : {1, 2}) {
        for (const auto reduce_type :
             std::vector<std::optional<at::ScalarType>>{std::nullopt, at::kBFloat16}) {
          DataParallelOptions options;
          options.zero_stage = stage;
          options.reduce_type = reduce_type;
          options.find_unused_parameters = true;
          for (const double of_small : {1.0, 0.25}) {
            const auto [counted, found] = counted_and_found(
                {ranks, micro_batches, options},
                [=](const std::string& name) { return name == "small" ? of_small : 1.0; });
            EXPECT_GT(found, 1);
            EXPECT_NEAR(counted, found, 1e-9 * found)
                << "stage " << stage << " on " << ranks << " ranks, " << micro_batches
                << " micro-batches" << (reduce_type ? ", reduced in bfloat16" : "");
          }
        }
      }
    }
  }
}

TEST(GradNormAccumulator, OfBfloat16AndOfSumsInFloat32) {
  for (const int ranks : {1, 2}) {
    for (const int stage : {0, 2}) {
      for (const auto gradients :
           std::vector<std::optional<at::ScalarType>>{std::nullopt, at::kFloat}) {
        DataParallelOptions options;
        options.zero_stage = stage;
        options.gradient_type = gradients;
        options.find_unused_parameters = true;
        const auto [counted, found] = counted_and_found(
            {ranks, 2, options, at::kBFloat16}, [](const std::string&) { return 1.0; });
        EXPECT_NEAR(counted, found, 1e-9 * found) << "stage " << stage << " on " << ranks;
      }
    }
  }
}

}  // namespace gradient_squares_test
}  // namespace lockstep::parallel
