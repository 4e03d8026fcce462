// Optimizer whose state is on the parameters' device, in host memory (Ren et al., "ZeRO-Offload",
// 2021), or in files (Rajbhandari et al., "ZeRO-Infinity", 2021).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/device_copies.h"
#include "optim/optimizer.h"
#include "parallel/offload/async_file.h"
#include "parallel/offload/shard_file.h"

namespace lockstep::parallel {

enum class OffloadDevice { kNone, kCpu, kNvme };

struct OptimizerOffload {
  OffloadDevice device = OffloadDevice::kNone;
  std::filesystem::path folder{};  // kNvme: folder of the files, one per rank
  /// Fraction of the elements whose state is offloaded, rounded to whole shards. The rest stays on
  /// the device.
  double ratio = 1;
};

/// A transfer of optimizer state between its storage and the device that uses it. Times are in
/// seconds of the steady clock.
struct OffloadCopy {
  std::string_view what;  // "read", "write", "gradient to host", "parameter to device"
  int64_t bytes = 0;
  double began = 0;
  double waited_from = 0;  // the rank waited from this time until `ended`
  double ended = 0;
};
using CopyObserver = std::function<void(const OffloadCopy&)>;

/// Runs an optimizer on state that may be offloaded. Offloaded master weights and moments are in
/// host memory and are updated on the CPU: gradients are copied to the host and the rounded
/// parameters back. State in files is in memory only during its own update: while one shard is
/// updated, the next shard's state is read and the previous one's is written. Small state
/// (Adafactor's rows and columns) stays in memory.
class OffloadedOptimizer {
 public:
  OffloadedOptimizer(std::unique_ptr<optim::Optimizer> optimizer, const OptimizerOffload& options);

  /// Same as Optimizer::add; the shard's tensors may be on any device. If optimizers do not support
  /// the parameter's type (float16), the shard contains a float32 master copy, and each update is
  /// rounded into `rounded_into`. If a master copy in host memory is requested but not given, it is
  /// initialized from the parameter on first use, so that the first forward pass does not wait for
  /// it.
  void add(optim::Shard shard, const at::Tensor& rounded_into = {});
  /// Initializes the pending master copies now. Must be called before shards are updated by
  /// anything other than step().
  void write_masters();
  /// Sets the file that stores the parameters of the shard that was added last. They are read
  /// before and written after each update.
  void keep_in(ShardFile& file, const at::Tensor& parameter);
  /// Updates every shard once. Calls `updated` after each shard, while its state is in memory.
  void step(
      double learning_rate, double gradient_scale, const std::function<void()>& updated = nullptr);
  /// Calls optim::Optimizer::put_averages for all shards.
  void put_averages(bool are_put);
  /// Calls visit(piece) for the state of a shard and its master weights (named "master.PARAMETER"
  /// if separate). The visitor may modify them.
  void visit_state(int64_t index, const optim::StateVisitor& visit);

  /// Sets the observer that is called after each transfer of a step. It replaces the previous one;
  /// an empty function removes it.
  void set_copy_observer(CopyObserver observer) { copied_ = std::move(observer); }

  /// Returns true if the state is stored in files between uses.
  bool uses_files() const { return file_ != nullptr; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }
  /// Bytes of master weights and moments currently in memory, on all devices or on the given
  /// device.
  int64_t bytes_in_memory() const;
  int64_t bytes_on(c10::Device device) const;

 private:
  /// A tensor that is stored in the file.
  struct Stored {
    at::Tensor tensor;
    uint64_t offset = 0;
    AsyncFile::Ticket ticket = 0;
  };
  struct Place {
    at::Tensor device_parameter, device_gradient;  // set if different from the optimizer's own
                                                   // tensors
    bool rounds = false;  // device_parameter has a smaller type than the optimizer's master copy
    bool master_is_due = false;                   // the master copy has not been initialized from
                                                  // the parameter yet
    ShardFile* parameter_file = nullptr;          // file that stores `parameter`
    at::Tensor parameter;                         // the engine's shard
    c10::Device device = c10::Device(c10::kCPU);  // device on which the state is updated
    int64_t bytes = 0;                            // size of the state in bytes
    std::vector<Stored> stored;
    enum class State { kInMemory, kReading, kWriting, kInFile } state = State::kInMemory;
    double began = 0;                   // start time of the read or write in progress
    std::optional<c10::Event> copying;  // copy from or to the device in progress
    double copy_began = 0;
  };

  /// Copies a tensor of a shard to host memory that supports asynchronous copies to and from its
  /// device.
  at::Tensor to_host(const at::Tensor& tensor) const;
  /// Returns true if the next shard, which has this number of elements, should be offloaded.
  bool takes_share(int64_t elements);
  bool has_master(int64_t index);
  static void write_master(Place& place, const optim::Shard& shard);
  int64_t bytes_of_state(int64_t index);
  void put_into_file(int64_t index);
  void start_load(int64_t index);
  void finish_store(int64_t index);
  void start_read(int64_t index);
  void finish_read(int64_t index);
  void start_write(int64_t index);
  void finish_write(int64_t index);
  /// Waits for the pending transfers of a shard.
  void await(const Place& place, std::string_view what);
  /// Copies asynchronously if either side is on a device. Copies of the same shard run
  /// sequentially.
  void start_copy(Place& place, const at::Tensor& to, const at::Tensor& from);
  void finish_copy(Place& place, std::string_view what, const at::Tensor& copied);

  OptimizerOffload options_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<AsyncFile> file_;
  uint64_t file_end_ = 0;
  double due_ = 0;  // number of elements that must still be offloaded to reach the ratio
  std::vector<Place> places_;
  CopyObserver copied_;
  std::unique_ptr<ops::DeviceCopies> copies_;  // null: everything is in host memory
};

}  // namespace lockstep::parallel
