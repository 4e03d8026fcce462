// Runs optimizer steps on offloaded state.
#include "parallel/offload/offloaded_optimizer.h"

#include <chrono>
#include <set>
#include <span>
#include <utility>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "base/clock.h"
#include "parallel/offload/storage.h"

namespace lockstep::parallel {
namespace {

constexpr uint64_t kFileAlignment = 4096;

/// Returns the whole storage of a view as a byte tensor.
at::Tensor storage_of(const at::Tensor& view) {
  return at::empty({0}, view.options().dtype(at::kByte)).set_(view.storage());
}

}  // namespace

OffloadedOptimizer::OffloadedOptimizer(
    std::unique_ptr<optim::Optimizer> optimizer, const OptimizerOffload& options)
    : options_(options),
      optimizer_(std::move(optimizer)) {
  if (options_.device == OffloadDevice::kNvme) {
    file_ = AsyncFile::create(options_.folder);
  }
}

void OffloadedOptimizer::add(optim::Shard shard, const at::Tensor& rounded_into) {
  const at::NoGradGuard no_grad;
  Place place;
  place.device_parameter = rounded_into;
  place.rounds = rounded_into.defined();
  const bool is_offloaded =
      options_.device != OffloadDevice::kNone && takes_share(shard.parameter.numel());
  const bool on_host = is_offloaded || shard.parameter.is_cpu();
  if (on_host && !shard.parameter.is_cpu()) {
    const bool is_master = shard.master.is_same(shard.parameter);
    if (!place.rounds) {
      place.device_parameter = shard.parameter;
    }
    shard.parameter = to_host(shard.parameter);
    if (shard.master.defined()) {  // a master copy that the caller provides is not moved
      shard.master = is_master ? shard.parameter : shard.master.to(at::kCPU);
    }
  }
  if (on_host && !shard.gradient.is_cpu()) {
    place.device_gradient = shard.gradient;
    shard.gradient = ops::host_like(shard.gradient);
  }
  for (const at::Tensor& on_device : {place.device_parameter, place.device_gradient}) {
    if (on_device.defined() && !on_device.is_cpu() && copies_ == nullptr) {
      copies_ = std::make_unique<ops::DeviceCopies>(on_device.device());
    }
  }
  place.device = shard.parameter.device();
  if (!shard.master.defined() && optimizer_->wants_master(shard.parameter.scalar_type())) {
    shard.master = at::empty_like(shard.parameter, at::kFloat);
    place.master_is_due = true;
    if (is_offloaded || optimizer_->has_averages()) {  // the optimizer needs the master copy
                                                       // immediately
      write_master(place, shard);
    }
  }
  const int64_t index = optimizer_->add(std::move(shard));
  places_.push_back(std::move(place));
  places_.back().bytes = bytes_of_state(index);
  if (file_ != nullptr && is_offloaded) {
    put_into_file(index);
  }
}

at::Tensor OffloadedOptimizer::to_host(const at::Tensor& tensor) const {
  // Shards in files repeatedly free their memory, so libtorch must own it.
  const auto pinned = tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda());
  const at::Tensor host =
      file_ != nullptr ? at::empty(tensor.sizes(), pinned) : ops::host_like(tensor);
  return host.copy_(tensor);
}

void OffloadedOptimizer::keep_in(ShardFile& file, const at::Tensor& parameter) {
  places_.back().parameter_file = &file;
  places_.back().parameter = parameter;
}

void OffloadedOptimizer::write_master(Place& place, const optim::Shard& shard) {
  if (std::exchange(place.master_is_due, false)) {
    shard.master.copy_(shard.parameter);
  }
}

void OffloadedOptimizer::write_masters() {
  for (size_t index = 0; index < places_.size(); ++index) {
    write_master(places_[index], optimizer_->shard(static_cast<int64_t>(index)));
  }
}

bool OffloadedOptimizer::takes_share(int64_t elements) {
  due_ += options_.ratio * static_cast<double>(elements);
  if (due_ < 0.5 * static_cast<double>(elements) || options_.ratio == 0) {
    return false;
  }
  due_ -= static_cast<double>(elements);
  return true;
}

bool OffloadedOptimizer::has_master(int64_t index) {
  const optim::Shard& shard = optimizer_->shard(index);
  return places_[static_cast<size_t>(index)].rounds ||
         (shard.master.defined() && !shard.master.is_same(shard.parameter));
}

void OffloadedOptimizer::put_into_file(int64_t index) {
  const optim::Shard& shard = optimizer_->shard(index);
  Place& place = places_[static_cast<size_t>(index)];
  std::set<const void*> seen;
  const auto store = [&](const at::Tensor& tensor) {
    if (tensor.numel() > 0 && seen.insert(tensor.storage().unsafeGetStorageImpl()).second) {
      place.stored.push_back({storage_of(tensor), file_end_});
      const uint64_t bytes = place.stored.back().tensor.nbytes();
      file_end_ += (bytes + kFileAlignment - 1) / kFileAlignment * kFileAlignment;
    }
  };
  if (has_master(index)) {
    store(shard.master);
  }
  if (optimizer_->state_bytes_per_element() > 0) {
    optimizer_->visit_state(index, [&](const optim::StatePiece& piece) { store(piece.data); });
  }
  start_write(index);
  finish_write(index);
}

void OffloadedOptimizer::start_read(int64_t index) {
  Place& place = places_[static_cast<size_t>(index)];
  finish_write(index);
  if (place.state != Place::State::kInFile) {
    return;
  }
  for (Stored& stored : place.stored) {
    set_allocated(stored.tensor, true);
    stored.ticket = file_->read(stored.offset, storage_bytes(stored.tensor));
  }
  place.began = seconds_now();
  place.state = Place::State::kReading;
}

void OffloadedOptimizer::finish_read(int64_t index) {
  Place& place = places_[static_cast<size_t>(index)];
  if (place.state == Place::State::kReading) {
    await(place, "read");
    place.state = Place::State::kInMemory;
  }
}

void OffloadedOptimizer::await(const Place& place, std::string_view what) {
  OffloadCopy done{.what = what, .began = place.began, .waited_from = seconds_now()};
  for (const Stored& stored : place.stored) {
    file_->wait(stored.ticket);
    done.bytes += static_cast<int64_t>(stored.tensor.nbytes());
  }
  done.ended = seconds_now();
  if (copied_) {
    copied_(done);
  }
}

void OffloadedOptimizer::start_copy(Place& place, const at::Tensor& to, const at::Tensor& from) {
  place.copy_began = seconds_now();
  if (copies_ != nullptr) {
    place.copying = copies_->start(to, from);
  } else {
    to.copy_(from);
  }
}

void OffloadedOptimizer::finish_copy(
    Place& place, std::string_view what, const at::Tensor& copied) {
  const double waited_from = seconds_now();
  if (place.copying) {
    place.copying->synchronize();
    place.copying.reset();
  }
  if (copied_) {
    const auto bytes = static_cast<int64_t>(copied.nbytes());
    copied_({what, bytes, place.copy_began, waited_from, seconds_now()});
  }
}

void OffloadedOptimizer::start_write(int64_t index) {
  Place& place = places_[static_cast<size_t>(index)];
  if (place.stored.empty()) {
    return;
  }
  for (Stored& stored : place.stored) {
    stored.ticket = file_->write(stored.offset, storage_bytes(stored.tensor));
  }
  place.began = seconds_now();
  place.state = Place::State::kWriting;
}

void OffloadedOptimizer::finish_write(int64_t index) {
  Place& place = places_[static_cast<size_t>(index)];
  if (place.state == Place::State::kWriting) {
    await(place, "write");
    for (const Stored& stored : place.stored) {
      set_allocated(stored.tensor, false);
    }
    place.state = Place::State::kInFile;
  }
}

void OffloadedOptimizer::step(
    double learning_rate, double gradient_scale, const std::function<void()>& updated) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(places_.size());
  if (copies_ != nullptr) {
    copies_->follow_compute();
  }
  for (int64_t index = 0; index < count; ++index) {
    Place& place = places_[static_cast<size_t>(index)];
    const optim::Shard& shard = optimizer_->shard(index);
    write_master(place, shard);
    if (place.device_parameter.defined() && !has_master(index)) {
      // A checkpoint may have been loaded into the parameter.
      start_copy(place, shard.parameter, place.device_parameter);
    }
    if (place.device_gradient.defined()) {
      start_copy(place, shard.gradient, place.device_gradient);
    }
  }
  if (optimizer_->looks_ahead()) {
    for (Place& place : places_) {
      if (place.copying) {
        place.copying->synchronize();  // the end time is recorded when the shard is updated
      }
    }
  }
  optimizer_->begin_step(gradient_scale);
  if (count > 0) {
    start_load(0);
  }
  for (int64_t index = 0; index < count; ++index) {
    if (index + 1 < count) {
      start_load(index + 1);
    }
    finish_read(index);
    Place& place = places_[static_cast<size_t>(index)];
    if (place.parameter_file != nullptr) {
      place.parameter_file->finish_load(place.parameter);
    }
    if (place.device_gradient.defined() || place.copying) {
      finish_copy(place, "gradient to host", optimizer_->shard(index).gradient);
    }
    optimizer_->update(index, learning_rate, gradient_scale);
    if (updated) {
      updated();
    }
    if (place.device_parameter.defined()) {
      start_copy(place, place.device_parameter, optimizer_->shard(index).parameter);
    }
    start_write(index);
    if (place.parameter_file != nullptr) {
      place.parameter_file->start_store(place.parameter);
    }
    if (index > 0) {
      finish_store(index - 1);
    }
  }
  if (count > 0) {
    finish_store(count - 1);
  }
  if (copies_ != nullptr) {
    copies_->lead_compute();
  }
  for (Place& place : places_) {
    if (copied_ && place.device_parameter.defined()) {  // the host only has to wait if there is an
                                                        // observer
      finish_copy(place, "parameter to device", place.device_parameter);
    }
  }
}

void OffloadedOptimizer::put_averages(bool are_put) {
  const at::NoGradGuard no_grad;
  for (int64_t index = 0; index < optimizer_->size(); ++index) {
    const Place& place = places_[static_cast<size_t>(index)];
    const at::Tensor& parameter = optimizer_->shard(index).parameter;
    if (place.device_parameter.defined() && !has_master(index)) {
      parameter.copy_(place.device_parameter);  // a checkpoint may have been loaded into the
                                                // device's copy
    }
    optimizer_->put_averages(index, are_put);
    if (place.device_parameter.defined()) {
      place.device_parameter.copy_(parameter);
    }
  }
}

void OffloadedOptimizer::start_load(int64_t index) {
  start_read(index);
  if (const Place& place = places_[static_cast<size_t>(index)]; place.parameter_file != nullptr) {
    place.parameter_file->start_load(place.parameter);
  }
}

void OffloadedOptimizer::finish_store(int64_t index) {
  finish_write(index);
  if (const Place& place = places_[static_cast<size_t>(index)]; place.parameter_file != nullptr) {
    place.parameter_file->finish_store(place.parameter);
  }
}

void OffloadedOptimizer::visit_state(int64_t index, const optim::StateVisitor& visit) {
  const at::NoGradGuard no_grad;
  start_read(index);
  finish_read(index);
  const optim::Shard& shard = optimizer_->shard(index);
  write_master(places_[static_cast<size_t>(index)], shard);
  if (has_master(index)) {
    for (const optim::Segment& segment : shard.layout) {
      visit(
          {"master",
           segment.parameter,
           segment.shape,
           segment.begin,
           shard.master.narrow(0, segment.offset, segment.count)});
    }
  }
  optimizer_->visit_state(index, visit);
  start_write(index);
  finish_write(index);
}

int64_t OffloadedOptimizer::bytes_of_state(int64_t index) {
  int64_t bytes = 0;
  std::set<const void*> seen;
  const auto add = [&](const at::Tensor& tensor) {
    const c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (seen.insert(storage).second) {
      bytes += static_cast<int64_t>(storage->nbytes());
    }
  };
  if (has_master(index)) {
    add(optimizer_->shard(index).master);
  }
  optimizer_->visit_state(index, [&](const optim::StatePiece& piece) { add(piece.data); });
  return bytes;
}

int64_t OffloadedOptimizer::bytes_in_memory() const {
  int64_t bytes = 0;
  for (const Place& place : places_) {
    bytes += place.state == Place::State::kInFile ? 0 : place.bytes;
  }
  return bytes;
}

int64_t OffloadedOptimizer::bytes_on(c10::Device device) const {
  int64_t bytes = 0;
  for (const Place& place : places_) {
    const bool is_here = place.state != Place::State::kInFile && place.device == device;
    bytes += is_here ? place.bytes : 0;
  }
  return bytes;
}

}  // namespace lockstep::parallel
