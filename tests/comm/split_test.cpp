// Tests of subgroups.
#include "comm/split.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "comm/threads.h"

namespace lockstep::comm {
namespace split_test {

TEST(Split, MakesGroupsThatReduceByThemselvesAgainAndAgain) {
  run_ranks(4, [](Communicator& world) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      const int first = world.rank() % 2;  // {0, 2} and {1, 3}
      Communicator group = split(world, {first, first + 2}, "half", {});
      EXPECT_EQ(group.size(), 2);
      EXPECT_EQ(group.rank(), world.rank() / 2);
      Tensor sum = torch::full({3}, static_cast<float>(world.rank()));
      group.all_reduce(sum).wait();
      EXPECT_EQ(sum[2].item<float>(), static_cast<float>(2 * first + 2));
      // A subgroup of a subgroup, with a single rank.
      EXPECT_EQ(split(group, {group.rank()}, "one", {}).size(), 1);
    }
  });
}

TEST(Split, TakesTheCallerAlongAlways) {
  run_ranks(2, [](Communicator& world) {
    EXPECT_THROW((void)split(world, {1 - world.rank()}, "other", {}), Error);
  });
}

TEST(Exchange, CountsWhatIsSent) {
  run_ranks(3, [](Communicator& world) {
    std::vector<int64_t> sent;
    world.set_observer([&](const Call& call) { sent.push_back(call.bytes_sent); });
    const int next = (world.rank() + 1) % 3, previous = (world.rank() + 2) % 3;
    const Tensor out = torch::ones({7}), in = torch::empty({7});
    const std::vector<P2p> transfers{
        {P2p::Direction::kReceive, in, previous, 1}, {P2p::Direction::kSend, out, next, 1}};
    world.exchange(transfers).wait();
    world.set_observer({});
    EXPECT_EQ(sent, (std::vector<int64_t>{28}));
  });
}

}  // namespace split_test
}  // namespace lockstep::comm
