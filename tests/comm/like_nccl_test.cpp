// Tests that the backend enforces NCCL's rules, and that our collectives and lanes obey them.
#include "comm/like_nccl.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "base/format.h"
#include "comm/links.h"
#include "comm/threads.h"

namespace lockstep::comm {
namespace like_nccl_test {

using Direction = P2p::Direction;

Tensor numbers(int rank, int64_t count = 6) {
  return torch::arange(count, torch::kFloat) + 100 * rank;
}

/// Returns the error of the first rank that fails, or an empty string.
std::string failure(int ranks, const std::function<void(Communicator&)>& body) {
  try {
    run_ranks({.size = ranks, .timeout = std::chrono::seconds(20)}, body);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void pass_round(Communicator& group) {
  const int next = (group.rank() + 1) % group.size();
  const int previous = (group.rank() + group.size() - 1) % group.size();
  const Tensor sent = numbers(group.rank()), received = torch::empty_like(sent);
  const std::vector<P2p> transfers{
      {Direction::kSend, sent, next}, {Direction::kReceive, received, previous}};
  Pending pending = group.exchange(transfers);
  EXPECT_TRUE(received.isnan().all().item<bool>()) << "what is not waited for is not there";
  pending.wait();
  EXPECT_TRUE(torch::equal(received, numbers(previous)));
}

TEST(LikeNccl, EveryVerb) {
  const UseLikeNccl use;
  run_ranks(3, [](Communicator& group) {
    const int rank = group.rank();
    Tensor sum = numbers(rank);
    group.all_reduce(sum).wait();
    EXPECT_TRUE(torch::equal(sum, numbers(0) + numbers(1) + numbers(2)));
    Tensor all = torch::empty({18});
    group.all_gather(all, numbers(rank)).wait();
    EXPECT_TRUE(torch::equal(all, torch::cat({numbers(0), numbers(1), numbers(2)})));
    Tensor part = torch::empty({2});
    group.reduce_scatter(part, numbers(rank)).wait();
    EXPECT_TRUE(torch::equal(part, sum.narrow(0, 2 * rank, 2)));
    Tensor from_one = numbers(rank);
    group.broadcast(from_one, 1).wait();
    EXPECT_TRUE(torch::equal(from_one, numbers(1)));
    Tensor across = torch::empty({6});
    group.all_to_all(across, numbers(rank)).wait();
    EXPECT_TRUE(torch::equal(across.narrow(0, 4, 2), numbers(2).narrow(0, 2 * rank, 2)));
    EXPECT_EQ(gather_strings(group, fmt::format("rank {}", rank)).at(2), "rank 2");
    pass_round(group);
  });
}

TEST(LikeNccl, MessagesGoAroundRingsOfAllSizes) {
  for (const bool connects_with_group : {true, false}) {
    const UseLikeNccl use({.connects_with_group = connects_with_group});
    for (const int ranks : {2, 3, 4}) {
      EXPECT_EQ(failure(ranks, pass_round), "") << ranks;
    }
  }
}

TEST(LikeNccl, NamesADeadlockAtOnce) {
  const UseLikeNccl use;
  const std::string text = failure(2, [](Communicator& group) {  // each sends before it receives
    const Tensor sent = numbers(group.rank()), received = torch::empty_like(sent);
    const int other = 1 - group.rank();
    const P2p send{Direction::kSend, sent, other}, receive{Direction::kReceive, received, other};
    group.exchange({&send, 1}).wait();
    group.exchange({&receive, 1}).wait();
  });
  EXPECT_NE(text.find("deadlock: "), std::string::npos) << text;
  EXPECT_NE(text.find("rank 0: send to 1"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1: send to 0"), std::string::npos) << text;
}

/// The same exchange succeeds with a buffer that the message fits into, as in small tests on GPUs.
TEST(LikeNccl, SmallMessagesHideADeadlock) {
  const UseLikeNccl use({.fifo_bytes = 64});
  EXPECT_EQ(
      failure(
          2,
          [](Communicator& group) {
            const Tensor sent = numbers(group.rank()), received = torch::empty_like(sent);
            const int other = 1 - group.rank();
            const P2p send{Direction::kSend, sent, other},
                receive{Direction::kReceive, received, other};
            group.exchange({&send, 1}).wait();
            group.exchange({&receive, 1}).wait();
          }),
      "");
}

TEST(LikeNccl, ComparesCollectives) {
  const UseLikeNccl use;
  const std::string text = failure(2, [](Communicator& group) {
    Tensor mine = numbers(group.rank(), 4 + group.rank());
    group.all_reduce(mine).wait();
  });
  EXPECT_NE(text.find("all_reduce (0) Float 4 -> 4"), std::string::npos) << text;
  EXPECT_NE(text.find("all_reduce (0) Float 5 -> 5"), std::string::npos) << text;
}

TEST(LikeNccl, SeesWhatChangesBeforeItWasSent) {
  const UseLikeNccl use;
  const std::string text = failure(2, [](Communicator& group) {
    Tensor out = torch::empty({12}), in = numbers(group.rank());
    Pending pending = group.all_gather(out, in);
    in.zero_();
    pending.wait();
  });
  EXPECT_NE(text.find("has changed before wait()"), std::string::npos) << text;
}

TEST(LikeNccl, ARankThatEndsIsTold) {
  const UseLikeNccl use;
  const std::string text = failure(2, [](Communicator& group) {
    if (group.rank() == 0) {
      Tensor mine = numbers(0);
      group.all_reduce(mine).wait();
    }
  });
  EXPECT_NE(text.find("a rank has ended"), std::string::npos) << text;
}

/// Both ranks send first, and one receives in a different order than it waits. Lanes do not block
/// each other and keep the sender's order.
TEST(Links, PassEachOther) {
  const auto body = [](Communicator& group) {
    const std::vector<std::pair<int, int>> pairs{{0, 1}, {1, 0}, {1, 2}, {2, 1}};
    Links links(group, c10::Device(c10::kCPU), pairs);
    if (group.rank() == 1) {
      std::vector<Tensor> received;
      std::vector<Pending> pending;
      for (const int from : {0, 2, 0, 2}) {
        received.push_back(torch::empty({6}));
        pending.push_back(links.receive(from, {&received.back(), 1}));
      }
      for (const int to : {2, 0}) {
        const Tensor sent = numbers(1);
        links.send(to, {&sent, 1}).wait();
      }
      for (const size_t i : {3U, 2U, 1U, 0U}) {
        pending[i].wait();
        EXPECT_TRUE(torch::equal(received[i], numbers(i % 2 == 0 ? 0 : 2) + (i < 2 ? 0 : 1000)));
      }
      return;
    }
    const Tensor first = numbers(group.rank()), second = first + 1000, back = torch::empty({6});
    Pending one = links.send(1, {&first, 1}), two = links.send(1, {&second, 1});
    links.receive(1, {&back, 1}).wait();
    one.wait();
    two.wait();
    EXPECT_TRUE(torch::equal(back, numbers(1)));
  };
  EXPECT_EQ(failure(3, body), "");
  const UseLikeNccl use;
  EXPECT_EQ(failure(3, body), "");
}

}  // namespace like_nccl_test
}  // namespace lockstep::comm
