// Stores parameter shards in a file.
#include "parallel/offload/shard_file.h"

#include <span>
#include <utility>

#include <ATen/Functions.h>

#include "parallel/offload/storage.h"

namespace lockstep::parallel {
namespace {

constexpr uint64_t kAlignment = 4096;

const void* key_of(const at::Tensor& shard) {
  return shard.storage().unsafeGetStorageImpl();
}

}  // namespace

ShardFile::ShardFile(const std::filesystem::path& folder) : file_(AsyncFile::create(folder)) {}

ShardFile::Place& ShardFile::place_of(const at::Tensor& shard) {
  return places_.at(key_of(shard));
}

bool ShardFile::holds(const at::Tensor& shard) const {
  return places_.contains(key_of(shard));
}

void ShardFile::put(const at::Tensor& shard) {
  places_[key_of(shard)].offset = end_;
  end_ += (shard.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
  start_store(shard);
  finish_store(shard);
}

void ShardFile::start_read(const at::Tensor& shard, const at::Tensor& into) {
  Place& place = place_of(shard);
  place.into = into;
  place.staged =
      into.is_cpu()
          ? into
          : at::empty(into.sizes(), into.options().device(at::kCPU).pinned_memory(into.is_cuda()));
  place.ticket = file_->read(place.offset, storage_bytes(place.staged));
}

void ShardFile::finish_read(const at::Tensor& shard) {
  Place& place = place_of(shard);
  file_->wait(place.ticket);
  if (!place.into.is_cpu()) {
    place.into.copy_(place.staged, /*non_blocking=*/true);
  }
  place.into = place.staged = at::Tensor();
}

void ShardFile::start_load(const at::Tensor& shard) {
  set_allocated(shard, true);
  place_of(shard).ticket = file_->read(place_of(shard).offset, storage_bytes(shard));
}

void ShardFile::finish_load(const at::Tensor& shard) {
  file_->wait(place_of(shard).ticket);
}

void ShardFile::start_store(const at::Tensor& shard) {
  place_of(shard).ticket = file_->write(place_of(shard).offset, storage_bytes(shard));
}

void ShardFile::finish_store(const at::Tensor& shard) {
  file_->wait(place_of(shard).ticket);
  set_allocated(shard, false);
}

}  // namespace lockstep::parallel
