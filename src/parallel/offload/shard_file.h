// Parameter shards that are stored in a file and have memory only while in use (Rajbhandari et al.,
// "ZeRO-Infinity", 2021).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>

#include <ATen/core/Tensor.h>

#include "parallel/offload/async_file.h"

namespace lockstep::parallel {

/// Shards are identified by their storage, which must be unshared host memory. Called by one
/// thread.
class ShardFile {
 public:
  /// Throws Error (environment) if the folder is not writable.
  explicit ShardFile(const std::filesystem::path& folder);

  /// Moves the shard into the file and frees its memory.
  void put(const at::Tensor& shard);
  bool holds(const at::Tensor& shard) const;

  /// Reads the values into another tensor of the same size and type, on any device; the shard stays
  /// in the file. finish_read blocks until they have arrived and must precede the next operation on
  /// the shard.
  void start_read(const at::Tensor& shard, const at::Tensor& into);
  void finish_read(const at::Tensor& shard);

  /// Allocates the shard's memory and reads its values.
  void start_load(const at::Tensor& shard);
  void finish_load(const at::Tensor& shard);
  /// Writes the values back and frees the memory.
  void start_store(const at::Tensor& shard);
  void finish_store(const at::Tensor& shard);

 private:
  struct Place {
    uint64_t offset = 0;
    AsyncFile::Ticket ticket = 0;
    at::Tensor into, staged;  // destination of a read, and its staging buffer
  };
  Place& place_of(const at::Tensor& shard);

  std::unique_ptr<AsyncFile> file_;
  uint64_t end_ = 0;
  std::map<const void*, Place> places_;  // by storage
};

}  // namespace lockstep::parallel
