// In-memory checkpoints: replication to the next node and recovery.
#include "checkpoint/in_memory_checkpoint.h"

#include <filesystem>
#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "comm/split.h"
#include "comm/threads.h"
#include "saving.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace kept_state_test {

const InMemoryRound kRound{"job", 0, 0};

/// Ranks of several machines, and the memory of each rank.
struct Machines {
  explicit Machines(std::vector<int> ranks) : ranks(std::move(ranks)), memories(size()) {}

  size_t size() const {
    return static_cast<size_t>(std::accumulate(ranks.begin(), ranks.end(), 0));
  }
  int machine_of(int rank) const {
    int machine = 0;
    for (; rank >= ranks[static_cast<size_t>(machine)]; ++machine) {
      rank -= ranks[static_cast<size_t>(machine)];
    }
    return machine;
  }
  int memory(int rank) const { return memories[static_cast<size_t>(rank)].descriptor(); }

  /// Stores the samples of these steps in one round.
  void keep(const std::vector<int64_t>& steps, const InMemoryRound& round = kRound) const {
    comm::run_ranks(static_cast<int>(size()), [&](comm::Communicator& communicator) {
      const int rank = communicator.rank();
      InMemoryCheckpoint kept(std::move(communicator), memory(rank), round, machine_of(rank));
      EXPECT_EQ(kept.has_neighbours(), ranks.size() > 1);
      for (const int64_t step : steps) {
        kept.keep(
            step,
            share_of(sample_tensors(step), rank, static_cast<int>(size())),
            sample_state(step));
      }
      kept.wait();
    });
  }

  /// Returns the step that ranks with these memories find; they also save and reload it.
  std::optional<int64_t> find(const std::vector<int>& left, const std::string& job = "job") const {
    std::optional<int64_t> found;
    const TemporaryFolder folder;
    comm::run_ranks(static_cast<int>(left.size()), [&](comm::Communicator& communicator) {
      const int old_rank = left[static_cast<size_t>(communicator.rank())];
      const auto kept =
          find_in_memory_step(old_rank < 0 ? -1 : memory(old_rank), job, communicator);
      if (!kept) {
        return;
      }
      save_checkpoint(
          checkpoint_folder(folder.path(), kept->step),
          kept->pieces,
          kept->about,
          sample_files(),
          communicator);
      const auto read = latest_checkpoint(folder.path(), communicator);
      ASSERT_TRUE(read);
      expect_sample(*read, kept->step, communicator.rank(), communicator.size());
      if (communicator.rank() == 0) {
        found = kept->step;
      }
    });
    return found;
  }

  std::vector<int> all_but(int lost) const {
    std::vector<int> left;
    for (int rank = 0; rank < static_cast<int>(size()); ++rank) {
      if (machine_of(rank) != lost) {
        left.push_back(rank);
      }
    }
    return left;
  }

  std::vector<int> ranks;
  std::vector<PersistentMemory> memories;
};

/// Overwrites bytes of a part.
void damage(int memory, int part, int64_t at, uint64_t value) {
  const auto offset = part * kPersistentPartBytes;
  auto* const bytes =
      static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, offset));
  ASSERT_NE(bytes, MAP_FAILED);
  std::memcpy(bytes + at, &value, sizeof value);
  ::munmap(bytes, 4096);
}

TEST(InMemoryCheckpoint, IsFoundByAnyNumberOfRanksThatHaveAllOfIt) {
  const Machines one({3});
  one.keep({1, 2, 3});
  EXPECT_EQ(one.find({0, 1, 2}), 3);
  EXPECT_EQ(one.find({2, 0, 1}), 3);
  EXPECT_EQ(one.find({-1, 2, 0, 1}), 3);  // including a rank without memory
  EXPECT_EQ(one.find({0, 2}), std::nullopt);
}

TEST(InMemoryCheckpoint, OutlivesAnyMachineWhoseNeighbourLives) {
  for (const std::vector<int>& ranks :
       std::vector<std::vector<int>>{{1, 1}, {3, 1}, {1, 3}, {2, 1, 4}, {1, 1, 1, 1, 1}}) {
    const Machines machines(ranks);
    machines.keep({1, 2});
    for (int lost = 0; lost < static_cast<int>(ranks.size()); ++lost) {
      EXPECT_EQ(machines.find(machines.all_but(lost)), 2) << "machine " << lost;
    }
  }
  const Machines three({1, 1, 1});
  three.keep({1, 2});
  EXPECT_EQ(three.find({0}), std::nullopt);  // two of three states
}

TEST(InMemoryCheckpoint, TheOneBeforeServesWhereTheLastIsNotWhole) {
  const Machines machines({2, 1});
  machines.keep({7, 8});  // states in parts 0 and 1, replicas in parts 2 and 3
  damage(machines.memory(1), 1, 0, 0);
  EXPECT_EQ(machines.find({0, 1, 2}), 8);  // the next node has a replica
  damage(machines.memory(2), 3, 0, 0);
  EXPECT_EQ(machines.find({0, 1, 2}), 7);
  damage(machines.memory(1), 0, 0, 0);
  damage(machines.memory(2), 2, 0, 0);
  EXPECT_EQ(machines.find({0, 1, 2}), std::nullopt);
}

TEST(InMemoryCheckpoint, StepsOfSeveralRoundsAreNotMixed) {
  const Machines machines({1, 2});
  machines.keep({4, 5});
  machines.keep({6}, {"job", 0, 1});  // overwrites the older state
  EXPECT_EQ(machines.find({0, 1, 2}), 6);
  damage(machines.memory(0), 0, 0, 0);
  damage(machines.memory(1), 2, 0, 0);
  EXPECT_EQ(machines.find({0, 1, 2}), 5);
  EXPECT_EQ(machines.find({0, 1, 2}, "another"), std::nullopt);
  EXPECT_EQ(machines.find({0, 1, 2}, ""), std::nullopt);
}

TEST(InMemoryCheckpoint, GarbageIsPassedOver) {
  const Machines machines({1, 1});
  machines.keep({1, 2});
  const std::vector<uint64_t> numbers{1, 17, 4096, 4097, uint64_t{1} << 40, uint64_t{1} << 63};
  for (int64_t field = 8; field < 32; field += 8) {
    for (const uint64_t number : numbers) {
      const Machines fresh({1, 1});
      fresh.keep({1, 2});
      damage(fresh.memory(0), 1, field, number);  // rank 0's state of step 2; rank 1 has a replica
      const auto found = fresh.find({0, 1});
      EXPECT_EQ(found, 2) << field << " " << number;
    }
  }
}

}  // namespace kept_state_test
}  // namespace lockstep::checkpoint
