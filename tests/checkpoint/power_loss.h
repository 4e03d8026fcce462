// Simulation of a loss of power: a file system in memory that records writes and syncs.
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

/// Performs all operations on the real disk below `root` and records every change. The model is
/// POSIX: a file's bytes are durable after its fsync, and the names in a folder after the folder's
/// fsync. After a loss of power, any later writes to a file and the last changes of a folder's
/// names may be missing. Changes of different folders are not ordered.
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

  /// Number of changes and syncs.
  size_t operations() const { return operations_.size(); }
  /// Creates in `folder` a random state that is possible if the power is lost after the first
  /// `count` operations.
  void lose_power(size_t count, std::mt19937_64& random, const std::filesystem::path& folder) const;

  bool can_exchange = true;

 private:
  struct Node;
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  struct Write {
    uint64_t offset;
    std::string bytes;
  };
  /// A file or folder, independent of its names, which are entries of folders.
  struct Node {
    bool is_folder = false;
    uint64_t size = 0;  // file size
    Names names;        // entries of a folder, as processes see them
    std::vector<Write> synced, written;
    Names synced_names;
    std::vector<std::function<void(Names&)>> changes;  // changes of the names since the last sync

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
