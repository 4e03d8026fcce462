// What a loss of power leaves of recorded writes: a file system in memory that knows what was
// synced.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/disk.h"

namespace lockstep::checkpoint {

/// Does what it is told on the real disk below `root`, and keeps every change. What POSIX promises
/// is the model: a file's bytes are there once it was synced, the names in a folder once that
/// folder was; of later writes to a file any may be missing, and of later changes of a folder's
/// names the last ones. Folders know nothing of each other's order.
class RecordingDisk : public Disk {
 public:
  explicit RecordingDisk(std::filesystem::path root);

  void create_folder(const std::filesystem::path& folder) override;
  void create_file(const std::filesystem::path& path, uint64_t size) override;
  void write(File& file, uint64_t offset, std::span<const std::byte> bytes) override;
  void sync(File& file) override;
  void sync_folder(const std::filesystem::path& folder) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  bool exchange(const std::filesystem::path& a, const std::filesystem::path& b) override;
  void remove(const std::filesystem::path& path) override;

  /// How many changes and syncs there were.
  size_t operations() const { return operations_.size(); }
  /// Makes in `folder` what may stand there where the power is lost after the first `count` of
  /// them.
  void lose_power(size_t count, std::mt19937_64& random, const std::filesystem::path& folder) const;

  bool can_exchange = true;

 private:
  struct Node;
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  struct Write {
    uint64_t offset;
    std::string bytes;
  };
  /// A file or a folder, by itself: names of it are in folders.
  struct Node {
    bool is_folder = false;
    uint64_t size = 0;  // of a file
    Names names;        // of a folder, as all see them
    std::vector<Write> synced, written;
    Names synced_names;
    std::vector<std::function<void(Names&)>> changes;  // of the names, since the last sync

    void change(std::function<void(Names&)> apply) {
      apply(names);
      changes.push_back(std::move(apply));
    }
  };
  using Operation = std::function<void(Node& root)>;

  std::vector<std::string> parts(const std::filesystem::path& path) const;
  static std::shared_ptr<Node> find(Node& root, std::span<const std::string> parts);
  static void remove_below(Node& folder, const std::string& name);
  static void make(const Node& node, std::mt19937_64& random, const std::filesystem::path& path);
  void record(Operation operation);

  std::filesystem::path root_;
  std::vector<Operation> operations_;
  std::mutex mutex_;
};

}  // namespace lockstep::checkpoint
