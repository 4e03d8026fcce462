// Parameter shards that are stored in a file and occupy memory only while in use (Rajbhandari et
// al., "ZeRO-Infinity", 2021).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>

#include <ATen/core/Tensor.h>

#include "parallel/offload/async_file.h"

namespace lockstep::parallel {

/// A shard is identified by its storage, which must be in host memory and not shared with other
/// tensors. Not thread-safe.
class ShardFile {
 public:
  /// Throws Error (environment) if the folder is not writable.
  explicit ShardFile(const std::filesystem::path& folder);

  /// Moves the shard's values to the file and frees its memory.
  void put(const at::Tensor& shard);
  bool holds(const at::Tensor& shard) const;

  /// Reads the values into another tensor of the same size and type, on any device. The shard
  /// itself stays in the file. finish_read blocks until the values have arrived and must be called
  /// before the next operation on the shard.
  void start_read(const at::Tensor& shard, const at::Tensor& into);
  void finish_read(const at::Tensor& shard);

  /// Allocates the shard's memory and reads its values.
  void start_load(const at::Tensor& shard);
  void finish_load(const at::Tensor& shard);
  /// Writes the values to the file and frees the shard's memory.
  void start_store(const at::Tensor& shard);
  void finish_store(const at::Tensor& shard);

 private:
  struct Place {
    uint64_t offset = 0;
    AsyncFile::Ticket ticket = 0;
    at::Tensor into, staged;  // destination and staging buffer of a read
  };
  Place& place_of(const at::Tensor& shard);

  std::unique_ptr<AsyncFile> file_;
  uint64_t end_ = 0;
  std::map<const void*, Place> places_;  // keyed by storage
};

}  // namespace lockstep::parallel
