// Shards of parameters that live in a file, and have memory while they are used alone
// (Rajbhandari et al., "ZeRO-Infinity", 2021).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>

#include <ATen/core/Tensor.h>

#include "parallel/offload/async_file.h"

namespace lockstep::parallel {

/// Shards are told apart by their storage, which must be theirs alone, in host memory. One thread
/// calls.
class ShardFile {
 public:
  /// Error (environment) where the folder cannot be written.
  explicit ShardFile(const std::filesystem::path& folder);

  /// Takes the shard over: its values are in the file, and its memory is gone.
  void put(const at::Tensor& shard);
  bool holds(const at::Tensor& shard) const;

  /// Reads the values into another tensor of their size and type, on any device; the shard stays
  /// where it is. finish_read blocks until they are there, and must come before the next of the
  /// shard.
  void start_read(const at::Tensor& shard, const at::Tensor& into);
  void finish_read(const at::Tensor& shard);

  /// Gives the shard its memory and its values.
  void start_load(const at::Tensor& shard);
  void finish_load(const at::Tensor& shard);
  /// Writes the values back, and takes the memory away.
  void start_store(const at::Tensor& shard);
  void finish_store(const at::Tensor& shard);

 private:
  struct Place {
    uint64_t offset = 0;
    AsyncFile::Ticket ticket = 0;
    at::Tensor into, staged;  // where a read goes, and what it passes through
  };
  Place& place_of(const at::Tensor& shard);

  std::unique_ptr<AsyncFile> file_;
  uint64_t end_ = 0;
  std::map<const void*, Place> places_;  // by storage
};

}  // namespace lockstep::parallel
