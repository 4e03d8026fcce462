// Tests that a board does not trust the store: file descriptors and PIDs from peers are verified.
#include "comm/shared_board.h"

#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <unistd.h>

#include "base/file.h"
#include "temporary_folder.h"

namespace lockstep::comm {
namespace shared_board_test {

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

/// Rank 1 joins, and an impostor acts as rank 0 and publishes `process` and `memory`. Returns true
/// if a board is created.
bool joins(const std::string& process, const std::string& memory) {
  const Store store = c10::make_intrusive<c10d::HashStore>();
  bool joined = false;
  std::thread victim([&] { joined = SharedBoard::join(store, 1, 2) != nullptr; });
  const std::vector<uint8_t> said = store->get("board/rank/1");
  const std::string own(said.begin(), said.end());
  store->set("board/rank/0", bytes(process + own.substr(own.find(' '))));
  store->set("board/memory", bytes(memory));
  store->set("board/mapped/0", bytes("yes"));
  store->set("board/read/0", bytes("yes"));
  victim.join();
  return joined;
}

TEST(SharedBoard, WritesIntoNoFileThatAStrangerNames) {
  const TemporaryFolder folder;
  const std::string text(size_t{1} << 20, 'x');
  write_file_atomically(folder.path() / "file", text);
  const std::string process = std::to_string(::getppid());
  EXPECT_FALSE(joins(process, "../../.." + (folder.path() / "file").string()));
  EXPECT_EQ(read_file(folder.path() / "file"), text);
}

TEST(SharedBoard, FollowsNoPointersOfAStranger) {
  EXPECT_FALSE(joins(std::to_string(::getpid()), "0"));
  EXPECT_FALSE(joins("0", "0"));
  EXPECT_FALSE(joins("-1", "0"));
  EXPECT_FALSE(joins("1x", "0"));
}

TEST(SharedBoard, RanksOfOneProcessShareOne) {
  const Store store = c10::make_intrusive<c10d::HashStore>();
  std::unique_ptr<SharedBoard> first, second;
  std::thread other([&] { first = SharedBoard::join(store, 0, 2); });
  second = SharedBoard::join(store, 1, 2);
  other.join();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(second->is_here(0));
}

}  // namespace shared_board_test
}  // namespace lockstep::comm
