// Tests of shared-memory collectives with ranks as threads and as processes.
#include "comm/shared_memory.h"

#include <chrono>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "comm/communicator.h"
#include "comm/split.h"
#include "comm/store.h"
#include "comm/threads.h"
#include "launch/system/job_store.h"

namespace lockstep::comm {
namespace shared_memory_test {

Tensor numbers(int64_t n, int rank, at::ScalarType type) {
  return (torch::arange(n, torch::kLong) * (rank + 3) % 13 - 6 * (type == at::kByte ? 0 : 1))
      .to(type);
}

/// Compares every operation on every type with a direct computation. Sizes: empty, smaller than the
/// number of ranks, odd, several blocks.
void try_every_verb(Communicator& group) {
  const int size = group.size(), rank = group.rank();
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kInt, at::kLong, at::kByte}) {
    for (const int64_t n : {0, 1, 7, 70'001}) {
      std::vector<Tensor> of_rank;
      for (int r = 0; r < size; ++r) {
        of_rank.push_back(numbers(n * size, r, type));
      }
      const Tensor every = torch::stack(of_rank);
      const Tensor total = every.to(torch::kDouble).sum(0).to(type);

      Tensor sum = of_rank[rank].clone(), most = of_rank[rank].clone();
      Tensor least = of_rank[rank].clone();
      Pending sums = group.all_reduce(sum), mosts = group.all_reduce(most, Reduce::kMax);
      group.all_reduce(least, Reduce::kMin).wait();
      mosts.wait();
      sums.wait();
      EXPECT_TRUE(sum.equal(total)) << n << " of " << type;
      Tensor beside = torch::empty_like(sum);
      const Tensor kept = of_rank[rank].clone();
      group.sum_into(beside, kept).wait();
      EXPECT_TRUE(beside.equal(total) && kept.equal(of_rank[rank])) << n << " of " << type;
      EXPECT_TRUE(n == 0 || most.equal(every.amax(0)));
      EXPECT_TRUE(n == 0 || least.equal(every.amin(0)));

      const Tensor in = of_rank[rank].clone();
      const Tensor part = in.narrow(0, rank * n, n);
      group.reduce_scatter(part, in).wait();
      EXPECT_TRUE(part.equal(total.narrow(0, rank * n, n)));
      group.all_gather(in, part).wait();
      EXPECT_TRUE(in.equal(total));

      Tensor turned = torch::empty_like(in);
      group.all_to_all(turned, of_rank[rank]).wait();
      for (int r = 0; r < size; ++r) {
        EXPECT_TRUE(turned.narrow(0, r * n, n).equal(of_rank[r].narrow(0, rank * n, n)));
      }
      Tensor from_last = of_rank[rank].clone();
      group.broadcast(from_last, size - 1).wait();
      EXPECT_TRUE(from_last.equal(of_rank[size - 1]));

      // Two messages with the same tag arrive in order.
      Tensor first = torch::empty_like(in), second = torch::empty_like(in);
      const int next = (rank + 1) % size, before = (rank + size - 1) % size;
      const P2p transfers[] = {
          {P2p::Direction::kSend, of_rank[rank], next, 5},
          {P2p::Direction::kSend, from_last, next, 5},
          {P2p::Direction::kReceive, first, before, 5},
          {P2p::Direction::kReceive, second, before, 5}};
      group.exchange(transfers).wait();
      EXPECT_TRUE(first.equal(of_rank[before]));
      EXPECT_TRUE(second.equal(from_last));
    }
  }
}

TEST(SharedMemory, EveryVerbOnEveryType) {
  for (const int size : {2, 3, 5}) {
    run_ranks(size, try_every_verb);
  }
}

TEST(SharedMemory, MoreAtATimeThanTheBoardHasRoomFor) {
  run_ranks(2, [](Communicator& group) {
    std::vector<Tensor> sums;
    std::vector<Pending> pending;
    for (int i = 0; i < 1000; ++i) {
      sums.push_back(torch::full({10'000}, group.rank() + i));
      pending.push_back(group.all_reduce(sums.back()));
    }
    for (int i = 999; i >= 0; --i) {
      pending[i].wait();
      EXPECT_EQ(sums[i][9'999].item<float>(), 2 * i + 1);
    }
  });
}

// A receiver's scan of the board may be interrupted while the peer posts two offers.
TEST(SharedMemory, MessagesUnderOneTagKeepTheirOrderHoweverManyComeAtOnce) {
  run_ranks(4, [](Communicator& group) {
    constexpr int kRounds = 1500, kMessages = 4;
    const int next = (group.rank() + 1) % 4, before = (group.rank() + 3) % 4;
    int out_of_order = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<Tensor> sent, received;
      std::vector<P2p> transfers;
      for (int i = 0; i < kMessages; ++i) {
        sent.push_back(torch::full({1}, round * kMessages + i, torch::kLong));
        received.push_back(torch::zeros({1}, torch::kLong));
        transfers.push_back({P2p::Direction::kSend, sent.back(), next, 5});
        transfers.push_back({P2p::Direction::kReceive, received.back(), before, 5});
      }
      group.exchange(transfers).wait();
      for (int i = 0; i < kMessages; ++i) {
        out_of_order += received[i].item<int64_t>() != round * kMessages + i;
      }
    }
    EXPECT_EQ(out_of_order, 0);
  });
}

// A rank waits for one operation while its background thread moves the bytes of another. Wake-ups
// from the peer must not be lost meanwhile. The timeouts here are long, so a lost wake-up causes an
// error.
TEST(SharedMemory, NoBellIsMissedWhileAnotherThreadGoesOn) {
  const launch::JobStore store;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const Store joined =
          join_store({.port = store.port(), .rank = rank, .size = 2, .hosted_by_agent = true});
      GroupOptions options;
      options.patience = std::chrono::hours(1);
      options.timeout = std::chrono::seconds(20);
      Communicator group(join_group(joined, rank, 2, options));
      const Tensor in = torch::ones({1 << 20}), half = torch::zeros({1 << 19});
      Tensor small = torch::zeros({10'000});
      for (int round = 0; round < 200; ++round) {
        Pending sums = group.reduce_scatter(half, in);
        std::this_thread::sleep_for(std::chrono::microseconds(150 * (round % 7) * (1 + rank)));
        Pending other = group.all_reduce(small.fill_(1));
        ASSERT_NO_THROW(other.wait()) << "round " << round;
        ASSERT_NO_THROW(sums.wait()) << "round " << round;
        ASSERT_EQ(small[9'999].item<float>() + half[0].item<float>(), 4);
      }
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
}

TEST(SharedMemory, RanksThatDifferAreTold) {
  try {
    run_ranks(2, [](Communicator& group) {
      Tensor tensor = torch::zeros({group.rank() == 0 ? 3 : 4});
      group.all_reduce(tensor).wait();
    });
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("all_reduce of 12 bytes of Float"), std::string::npos) << text;
    EXPECT_NE(text.find("all_reduce of 16 bytes of Float"), std::string::npos) << text;
  }
}

TEST(SharedMemory, GivesUpAfterItsTime) {
  try {
    run_ranks({.size = 2, .timeout = std::chrono::seconds(1)}, [](Communicator& group) {
      if (group.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::seconds(2));
        return;
      }
      Tensor tensor = torch::zeros({3});
      group.all_reduce(tensor).wait();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no answer in 1 s from rank 1"), std::string::npos)
        << error.what();
  }
}

/// Checks the errors of the other ranks if `sleeper` arrives too late. Each rank runs an operation
/// of its own kind, in half of the world or in all of it.
void expect_named(int size, int sleeper, bool in_halves) {
  std::mutex mutex;
  std::vector<std::string> told;
  const auto timeout = std::chrono::milliseconds(700);
  try {
    run_ranks({.size = size, .timeout = timeout}, [&](Communicator& world) {
      std::vector<int> half;
      for (int rank = world.rank() % 2; rank < size; rank += 2) {
        half.push_back(rank);
      }
      GroupOptions options;
      options.timeout = timeout;
      Communicator part = split(world, half, "half", options);
      world.barrier();
      if (world.rank() == sleeper) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1300));
        return;
      }
      try {
        Tensor tensor = torch::zeros({3});
        if (in_halves) {
          part.all_reduce(tensor).wait();
        }
        world.all_reduce(tensor).wait();
      } catch (const Error& error) {
        const std::scoped_lock lock(mutex);
        told.push_back(error.message());
        throw;
      }
    });
    FAIL();
  } catch (const Error&) {
  }
  EXPECT_EQ(told.size(), static_cast<size_t>(size - 1));
  for (const std::string& text : told) {
    EXPECT_TRUE(text.ends_with(fmt::format(" rank {}", sleeper))) << text;
    EXPECT_NE(text.find("no answer"), std::string::npos) << text;
    EXPECT_NE(text.find("all_reduce number"), std::string::npos) << text;
    EXPECT_NE(text.find("shape [3]"), std::string::npos) << text;
  }
}

TEST(SharedMemory, TheRankThatDoesNotComeIsNamedByAll) {
  for (const int size : {3, 5}) {
    for (int sleeper = 0; sleeper < size; ++sleeper) {
      SCOPED_TRACE(fmt::format("rank {} of {}", sleeper, size));
      expect_named(size, sleeper, /*in_halves=*/false);
    }
  }
}

TEST(SharedMemory, TheRankThatAnotherGroupWaitsForIsNamedByAll) {
  for (int sleeper = 0; sleeper < 4; ++sleeper) {
    SCOPED_TRACE(fmt::format("rank {} of 4", sleeper));
    expect_named(4, sleeper, /*in_halves=*/true);
  }
}

using Body = void (*)(Communicator& group);

/// Runs `body` in three processes as ranks of one group; returns their exit statuses.
std::vector<int> run_processes(Body body) {
  const launch::JobStore store;
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      at::set_num_threads(1);  // fork() does not copy the parent's threads
      {
        const Store joined =
            join_store({.port = store.port(), .rank = rank, .size = 3, .hosted_by_agent = true});
        Communicator group(join_group(joined, rank, 3, {}));
        const auto& backend = *group.process_group()->getBackend(c10::kCPU);
        EXPECT_EQ(backend.getBackendName(), SharedMemoryBackend::kName);
        body(group);
      }
      ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    statuses.push_back(status);
  }
  return statuses;
}

TEST(SharedMemory, ProcessesReadEachOthersMemory) {
  EXPECT_EQ(run_processes(try_every_verb), (std::vector<int>{0, 0, 0}));
}

void see_that_one_is_killed(Communicator& group) {
  group.barrier();
  if (group.rank() == 1) {
    ::raise(SIGKILL);
  }
  Tensor tensor = torch::ones({100'000});
  try {
    group.all_reduce(tensor).wait();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kPeerLost);
    // One of the remaining ranks may detect it first and leave.
    EXPECT_NE(std::string(error.what()).find(" has ended"), std::string::npos) << error.what();
  }
}

TEST(SharedMemory, AKilledProcessIsSeen) {
  EXPECT_EQ(run_processes(see_that_one_is_killed), (std::vector<int>{0, SIGKILL, 0}));
}

}  // namespace shared_memory_test
}  // namespace lockstep::comm
