// A background save contains the state from when it began, although training continues.
#include "checkpoint/copy_on_write_state.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "checkpoint/async_saver.h"
#include "comm/threads.h"
#include "saving.h"
#include "temporary_folder.h"

namespace lockstep::checkpoint {
namespace lent_memory_test {

TEST(CopyOnWriteState, IsReadAsItWasWheneverItIsTakenBack) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    CopyOnWriteState lent;
    std::vector<at::Tensor> tensors, before;
    for (int i = 0; i < 4; ++i) {
      tensors.push_back(at::randint(256, {static_cast<int64_t>(1 + random() % 40'000)}, at::kByte));
      before.push_back(tensors.back().clone());
      ASSERT_TRUE(lent.lend(tensors.back(), at::empty_like(tensors.back())));
    }
    std::promise<void> now;  // the training thread writes at a random time during the read
    const uint64_t blocks = random() % 100;
    std::thread reader([&] {
      uint64_t done = 0;
      for (size_t i = 0; i < tensors.size(); ++i) {
        for (int64_t at = 0; at < before[i].numel(); at += 1000, ++done) {
          if (done == blocks) {
            now.set_value();
          }
          const int64_t count = std::min<int64_t>(1000, before[i].numel() - at);
          lent.read(
              static_cast<const std::byte*>(tensors[i].const_data_ptr()) + at,
              count,
              [&](const std::byte* from) {
                const auto* expected = before[i].const_data_ptr<uint8_t>() + at;
                EXPECT_EQ(std::memcmp(from, expected, static_cast<size_t>(count)), 0);
              });
        }
      }
      if (done <= blocks) {
        now.set_value();
      }
      lent.end();
    });
    now.get_future().wait();
    lent.before_state_update();
    for (at::Tensor& tensor : tensors) {
      tensor.bitwise_not_();
    }
    reader.join();
  }
}

TEST(CopyOnWriteState, IsLentOnceAndLeavesOtherMemoryAlone) {
  CopyOnWriteState lent;
  const at::Tensor bytes = at::arange(100, at::kByte), copy = at::empty_like(bytes);
  EXPECT_TRUE(lent.lend(bytes.narrow(0, 20, 20), copy.narrow(0, 20, 20)));
  EXPECT_FALSE(lent.lend(bytes.narrow(0, 10, 11), copy));
  EXPECT_FALSE(lent.lend(bytes.narrow(0, 39, 5), copy));
  EXPECT_FALSE(lent.lend(bytes, copy));
  EXPECT_TRUE(lent.lend(bytes.narrow(0, 40, 5), copy.narrow(0, 40, 5)));
  lent.before_state_update();
  const auto* begin = static_cast<const std::byte*>(bytes.const_data_ptr());
  for (const int64_t at : {0, 19, 45}) {
    lent.read(begin + at, 1, [&](const std::byte* from) { EXPECT_EQ(from, begin + at); });
  }
  lent.read(begin + 39, 1, [&](const std::byte* from) {
    EXPECT_NE(from, begin + 39);
    EXPECT_EQ(*from, std::byte{39});
  });
  lent.end();
  EXPECT_TRUE(lent.lend(bytes, copy));
}

/// Blocks from the n-th write on until it is released.
class WaitingDisk : public Disk {
 public:
  explicit WaitingDisk(int64_t at) : at_(at) {}
  void let() { let_.set_value(); }
  void write(File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    if (count_++ >= at_) {
      go_.wait();
    }
    Disk::write(file, offset, bytes);
  }

 private:
  int64_t at_;
  std::atomic<int64_t> count_ = 0;
  std::promise<void> let_;
  std::shared_future<void> go_ = let_.get_future().share();
};

TEST(AsyncSaver, SavesWhatWasThereHoweverSlowTheDisk) {
  const TemporaryFolder folder;
  for (const int64_t writes : {0, 2, 5, 1000}) {
    WaitingDisk disk(writes);
    std::barrier written(2);
    comm::run_ranks(2, [&](comm::Communicator& communicator) {
      AsyncSaver saver(communicator);
      auto pieces = share_of(sample_tensors(7), communicator.rank(), 2);
      for (Piece& piece : pieces) {
        piece.data = piece.data.clone();
      }
      SaveOptions options;
      options.disk = &disk;
      const auto path = checkpoint_folder(folder.path(), writes + 1);
      saver.save(path, pieces, sample_state(7), sample_files(), options);
      saver.before_state_update();  // does not wait for the disk
      for (Piece& piece : pieces) {
        piece.data.fill_(-1);
      }
      written.arrive_and_wait();
      if (communicator.rank() == 0) {
        disk.let();
      }
      saver.wait();
      expect_sample(Checkpoint::open(path, communicator), 7, communicator.rank(), 2);
    });
  }
}

}  // namespace lent_memory_test
}  // namespace lockstep::checkpoint
