// The host arena: best fit, merging of free runs, and release.
#include "ops/cpu/host_arena.h"

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::ops {
namespace host_arena_test {

constexpr size_t kPage = HostArena::kPage;
constexpr size_t kHuge = size_t{2} << 20;

TEST(HostArena, GivesTheShortestPlaceThatHasRoom) {
  HostArena arena(64 * kPage);
  std::byte* const a = arena.take(2 * kPage);
  std::byte* const b = arena.take(3 * kPage);
  std::byte* const c = arena.take(kPage);
  EXPECT_EQ(b, a + 2 * kPage);
  EXPECT_EQ(c, b + 3 * kPage);
  arena.give(a, 2 * kPage);
  EXPECT_EQ(arena.take(3 * kPage), c + kPage);
  EXPECT_EQ(arena.take(2 * kPage), a);
  std::byte* const last = arena.take(kPage);
  EXPECT_EQ(last, c + 4 * kPage);
  arena.give(b, 3 * kPage);
  arena.give(c, kPage);  // three free pages and one page merge into a run of four
  arena.give(a, kPage);
  EXPECT_EQ(arena.take(kPage), a);
  EXPECT_EQ(arena.take(2 * kPage), b);
  arena.give(b, 2 * kPage);
}

TEST(HostArena, OfPlacesAsShortGivesTheLowest) {
  HostArena arena(64 * kPage);
  std::vector<std::byte*> begins;
  for (int i = 0; i < 6; ++i) {
    begins.push_back(arena.take(2 * kPage));
  }
  arena.give(begins[3], 2 * kPage);
  arena.give(begins[1], 2 * kPage);
  EXPECT_EQ(arena.take(2 * kPage), begins[1]);
  EXPECT_EQ(arena.take(kPage), begins[3]);
}

TEST(HostArena, FreeRunsThatTouchAreOne) {
  HostArena arena(64 * kPage);
  std::byte* const a = arena.take(2 * kPage);
  std::byte* const b = arena.take(3 * kPage);
  std::byte* const c = arena.take(4 * kPage);
  const std::byte* const last = arena.take(kPage);
  arena.give(a, 2 * kPage);
  arena.give(c, 4 * kPage);
  arena.give(b, 3 * kPage);
  EXPECT_EQ(arena.take(9 * kPage), a);
  EXPECT_EQ(arena.take(kPage), last + kPage);
}

TEST(HostArena, HasNoRoomWhereNoRunIsAsLong) {
  HostArena arena(kHuge);
  std::byte* const all = arena.take(kHuge);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(arena.take(kPage), nullptr);
  arena.give(all, kHuge);
  EXPECT_EQ(arena.take(kHuge + kPage), nullptr);
}

TEST(HostArena, RefusesMoreAddressesThanThereAre) {
  EXPECT_THROW(HostArena(size_t{1} << 60), Error);
}

TEST(HostArena, ReleasesFreeMemoryFromBehindAndKeepsWhatIsGiven) {
  HostArena arena(8 * kHuge);
  std::byte* const low = arena.take(2 * kHuge);
  std::byte* const middle = arena.take(kHuge);
  std::byte* const high = arena.take(3 * kHuge);
  std::memset(low, 1, 2 * kHuge);
  std::memset(middle, 2, kHuge);
  std::memset(high, 3, 3 * kHuge);
  EXPECT_EQ(arena.resident(), 6 * kHuge);
  arena.give(low, 2 * kHuge);
  arena.give(high, 3 * kHuge);
  EXPECT_EQ(arena.resident(), 6 * kHuge);
  arena.release_down_to(4 * kHuge);
  EXPECT_EQ(arena.resident(), 4 * kHuge);
  EXPECT_EQ(high[0], std::byte{3});
  arena.release_down_to(0);
  EXPECT_EQ(arena.resident(), kHuge);
  EXPECT_EQ(middle[kHuge - 1], std::byte{2});
  EXPECT_EQ(arena.take(kHuge), low);
  EXPECT_EQ(low[0], std::byte{0});  // released and mapped again by the system
  EXPECT_EQ(arena.resident(), 2 * kHuge);
}

TEST(HostArena, RunsNeverOverlapAndNothingIsLost) {
  constexpr size_t kPages = 500;
  HostArena arena(kPages * kPage);
  const size_t whole = kHuge;  // 512 pages: addresses are reserved in units of 2 MiB
  std::mt19937 random(7);
  std::map<std::byte*, size_t> taken;
  for (int turn = 0; turn < 3000; ++turn) {
    if (random() % 2 == 0) {
      const size_t size = (1 + random() % 40) * kPage;
      if (std::byte* const begin = arena.take(size)) {
        const auto next = taken.lower_bound(begin);
        EXPECT_TRUE(next == taken.end() || begin + size <= next->first);
        EXPECT_TRUE(
            next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= begin);
        std::memset(begin, 1, size);
        taken.emplace(begin, size);
      }
    } else if (!taken.empty()) {
      const auto some = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      arena.give(some->first, some->second);
      taken.erase(some);
    }
    if (turn % 100 == 99) {
      arena.release_down_to(random() % whole);
    }
    size_t used = 0;
    for (const auto& [begin, size] : taken) {
      used += size;
    }
    EXPECT_GE(arena.resident(), used);
    EXPECT_LE(arena.resident(), whole);
  }
  for (const auto& [begin, size] : taken) {
    arena.give(begin, size);
  }
  EXPECT_NE(arena.take(whole), nullptr);
  EXPECT_EQ(arena.resident(), whole);
}

}  // namespace host_arena_test
}  // namespace lockstep::ops
