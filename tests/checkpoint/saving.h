// Small checkpoints for tests: tensors of odd shapes, sharded among ranks, and a disk that fails.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/format.h"
#include "checkpoint/checkpoint.h"

namespace lockstep::checkpoint {

/// Whole tensors of both groups: bfloat16 and float32, one element, no elements, two dims. `salt`
/// determines their values.
inline std::vector<Piece> sample_tensors(int64_t salt) {
  std::vector<Piece> whole;
  const auto add = [&](const std::string& group,
                       const std::string& name,
                       at::ScalarType type,
                       const std::vector<int64_t>& shape) {
    const at::Tensor values =
        at::arange(c10::multiply_integers(shape), at::kFloat) * 0.37 + static_cast<double>(salt);
    whole.push_back({group, name, type, shape, 0, values.to(type)});
  };
  for (const auto& [name, shape] : std::map<std::string, std::vector<int64_t>>{
           {"transformer.wte.weight", {13, 5}},
           {"transformer.h.0.attn.c_attn.weight", {5, 15}},
           {"transformer.h.0.ln_1.bias", {5}},
           {"transformer.one", {1}},
           {"transformer.scalar", {}},
           {"transformer.none", {0, 4}}}) {
    add("model", name, at::kBFloat16, shape);
    for (const char* part : {"master", "exp_avg", "exp_avg_sq"}) {
      add("optimizer", fmt::format("{}.{}", name, part), at::kFloat, shape);
    }
  }
  return whole;
}

inline std::string sample_state(int64_t salt) {
  return fmt::format("{{\"step\": {}}}", salt);
}

inline SmallFiles sample_files() {
  return {
      {"config.json", "{\"model_type\": \"gpt2\"}"}, {"trainer_state.json", "{}"}, {"empty", ""}};
}

/// Saves checkpoint-<step> in `output_dir`, with values derived from `step`.
inline void save_sample(
    const std::filesystem::path& output_dir,
    int64_t step,
    comm::Communicator& communicator,
    const SaveOptions& options = {}) {
  save_checkpoint(
      checkpoint_folder(output_dir, step),
      share_of(sample_tensors(step), communicator.rank(), communicator.size()),
      sample_state(step),
      sample_files(),
      communicator,
      options);
}

/// Reads this rank's shard and compares it with what save_sample wrote.
inline void expect_sample(const Checkpoint& checkpoint, int64_t step, int rank, int size) {
  EXPECT_EQ(checkpoint.state(), sample_state(step));
  EXPECT_EQ(checkpoint.file("config.json"), sample_files().at("config.json"));
  std::vector<ExpectedTensor> expected;
  for (const Piece& piece : sample_tensors(step)) {
    expected.push_back({piece.file_group, piece.name, piece.shape, piece.dtype});
  }
  checkpoint.check(expected);
  const std::vector<Piece> written = share_of(sample_tensors(step), rank, size);
  std::vector<Piece> read = written;
  for (Piece& piece : read) {
    piece.data = at::full_like(piece.data, -1);
  }
  checkpoint.read(read);
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_TRUE(read[i].data.equal(written[i].data)) << read[i].name;
  }
}

/// Simulates the end of the process. Not derived from std::exception, so that no handler catches
/// it.
struct Killed {};

/// Counts operations and injects a fault from the n-th on. Also checks that a save syncs everything
/// that it renames.
class FaultyDisk : public Disk {
 public:
  enum class Fault { kNone, kNoSpace, kIoError, kKill };

  /// Operation number `at` (from 0) fails; a write is half completed first. kKill: all later
  /// operations fail too.
  FaultyDisk(Fault fault, int64_t at) : fault_(fault), at_(at) {}

  int64_t operations() const { return count_; }

  void create_folder(const std::filesystem::path& folder) override {
    step("create", folder);
    Disk::create_folder(folder);
  }
  void create_file(const std::filesystem::path& path, uint64_t size) override {
    step("create", path);
    Disk::create_file(path, size);
    const std::scoped_lock lock(mutex_);
    unsynced_.insert(path.string());
  }
  void write(File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    {
      const std::scoped_lock lock(mutex_);
      unsynced_.insert(file.path().string());
    }
    step("write", file.path(), [&] { file.write_at(offset, bytes.first(bytes.size() / 2)); });
    Disk::write(file, offset, bytes);
  }
  void sync(File& file) override {
    step("sync", file.path());
    Disk::sync(file);
    const std::scoped_lock lock(mutex_);
    unsynced_.erase(file.path().string());
  }
  void sync_folder(const std::filesystem::path& folder) override {
    step("sync", folder);
    Disk::sync_folder(folder);
  }
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    expect_synced(from);
    step("rename", to);
    Disk::rename(from, to);
  }
  bool exchange(const std::filesystem::path& a, const std::filesystem::path& b) override {
    expect_synced(a);
    step("replace", b);
    return can_exchange && Disk::exchange(a, b);
  }
  void remove(const std::filesystem::path& path) override {
    step("remove", path);
    Disk::remove(path);
  }

  bool can_exchange = true;

 private:
  void step(
      const char* action,
      const std::filesystem::path& path,
      const std::function<void()>& half = [] {}) {
    const int64_t number = count_++;
    if (fault_ == Fault::kKill && number > at_) {
      throw Killed{};
    }
    if (number != at_ || fault_ == Fault::kNone) {
      return;
    }
    half();
    if (fault_ == Fault::kKill) {
      throw Killed{};
    }
    errno = fault_ == Fault::kNoSpace ? ENOSPC : EIO;
    throw system_error(ErrorKind::kCheckpoint, action, path);
  }
  void expect_synced(const std::filesystem::path& moved) {
    const std::scoped_lock lock(mutex_);
    for (const std::string& path : unsynced_) {
      EXPECT_FALSE(path.starts_with(moved.string() + "/")) << path << " was not synced";
    }
    std::erase_if(unsynced_, [&](const auto& path) { return path.starts_with(moved.string()); });
  }

  Fault fault_;
  int64_t at_;
  std::atomic<int64_t> count_ = 0;
  std::mutex mutex_;
  std::set<std::string> unsynced_;
};

}  // namespace lockstep::checkpoint
