// Tests of DistributedSampler.
#include "library/distributed_sampler.h"

#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"

namespace lockstep {
namespace distributed_sampler_test {

using Options = DistributedSamplerOptions;
using ::testing::HasSubstr;

/// Returns the samples that a rank draws in an epoch, in batches of 3.
std::vector<size_t> epoch_of(DistributedSampler& sampler) {
  sampler.reset();
  std::vector<size_t> all;
  while (const auto batch = sampler.next(3)) {
    EXPECT_LE(batch->size(), 3);
    all.insert(all.end(), batch->begin(), batch->end());
  }
  return all;
}

Options of_rank(int64_t rank, int64_t ranks) {
  Options options;
  options.rank = rank;
  options.ranks = ranks;
  options.seed = 4;
  return options;
}

TEST(DistributedSampler, EveryEpochHasAnOrderOfItsOwn) {
  DistributedSampler sampler(20, of_rank(0, 1));
  const auto first = epoch_of(sampler), second = epoch_of(sampler);
  EXPECT_NE(first, second);
  EXPECT_TRUE(std::is_permutation(first.begin(), first.end(), second.begin(), second.end()));
  EXPECT_EQ(sampler.epoch(), 1);
  DistributedSampler again(20, of_rank(0, 1));
  EXPECT_EQ(epoch_of(again), first);
}

TEST(DistributedSampler, RanksShareAnEpoch) {
  for (const size_t size : {1UL, 7UL, 12UL, 13UL}) {
    for (const int64_t ranks : {1, 2, 3, 5}) {
      DistributedSampler one(size, of_rank(0, 1));
      const auto order = epoch_of(one);
      std::vector<std::vector<size_t>> parts;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        DistributedSampler sampler(size, of_rank(rank, ranks));
        parts.push_back(epoch_of(sampler));
        ASSERT_EQ(static_cast<int64_t>(parts.back().size()), sampler.samples_of_rank());
      }
      // Interleaved, the ranks' samples are the order of a single rank, padded with its first
      // samples.
      for (size_t place = 0; place < parts[0].size() * parts.size(); ++place) {
        EXPECT_EQ(parts[place % parts.size()][place / parts.size()], order[place % size])
            << size << " samples, " << ranks << " ranks, place " << place;
      }
    }
  }
}

TEST(DistributedSampler, LeavesTheRestOutOnRequest) {
  Options options = of_rank(1, 3);
  options.remainder = Options::Remainder::kDrop;
  options.order = Options::Order::kSequential;
  DistributedSampler sampler(11, options);
  EXPECT_EQ(epoch_of(sampler), (std::vector<size_t>{1, 4, 7}));
}

TEST(DistributedSampler, GoesOnWhereItWas) {
  DistributedSampler sampler(13, of_rank(1, 2)), other(13, of_rank(1, 2));
  epoch_of(sampler);
  sampler.reset();
  sampler.next(2);
  torch::serialize::OutputArchive out;
  sampler.save(out);
  std::stringstream bytes;
  out.save_to(bytes);
  torch::serialize::InputArchive in;
  in.load_from(bytes);
  other.load(in);
  other.reset();  // data loaders call reset() first
  EXPECT_EQ(other.epoch(), 1);
  EXPECT_EQ(other.position(), 2);
  EXPECT_EQ(other.next(9), sampler.next(9));
  EXPECT_EQ(epoch_of(other), epoch_of(sampler));
}

TEST(DistributedSampler, AFinishedEpochIsFollowedByTheNext) {
  DistributedSampler sampler(6, of_rank(0, 1));
  sampler.go_on(0, 6);
  EXPECT_EQ(epoch_of(sampler).size(), 6);
  EXPECT_EQ(sampler.epoch(), 1);
}

TEST(DistributedSampler, ALoaderDrawsItsOwnOrderEachTime) {
  struct Numbers : torch::data::Dataset<Numbers> {
    torch::data::Example<> get(size_t index) override {
      return {torch::tensor(static_cast<int64_t>(index)), torch::Tensor()};
    }
    std::optional<size_t> size() const override { return 9; }
  };
  auto loader = torch::data::make_data_loader(
      Numbers(), DistributedSampler(9, of_rank(0, 1)), torch::data::DataLoaderOptions(4));
  std::vector<std::vector<int64_t>> epochs(3);
  for (auto& epoch : epochs) {
    for (const auto& batch : *loader) {
      for (const auto& example : batch) {
        epoch.push_back(example.data.item<int64_t>());
      }
    }
    EXPECT_EQ(epoch.size(), 9);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(DistributedSampler, SaysWhatIsWrong) {
  const auto message = [](size_t size, const Options& options) -> std::string {
    try {
      DistributedSampler sampler(size, options);
      sampler.go_on(0, 100);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(4, of_rank(2, 2)), HasSubstr("rank 2 is out of range for 2 ranks"));
  Options drop = of_rank(0, 3);
  drop.remainder = Options::Remainder::kDrop;
  EXPECT_THAT(message(2, drop), HasSubstr("2 samples for 3 ranks"));
  EXPECT_THAT(message(2, of_rank(0, 1)), HasSubstr("position 100"));
}

}  // namespace distributed_sampler_test
}  // namespace lockstep
