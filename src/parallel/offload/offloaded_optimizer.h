// Where the optimizer's state lives: on the parameters' device, in host memory (Ren et al.,
// "ZeRO-Offload", 2021), or in files (Rajbhandari et al., "ZeRO-Infinity", 2021).
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
  std::filesystem::path folder{};  // kNvme: of the files, one a rank
  /// Share of the elements whose state is offloaded, to within a shard; the rest stays on the
  /// device.
  double ratio = 1;
};

/// State that moved between where it lives and where it is used, in seconds of the steady clock.
struct OffloadCopy {
  std::string_view what;  // "read", "write", "gradient to host", "parameter to device"
  int64_t bytes = 0;
  double began = 0;
  double waited_from = 0;  // from here to the end the rank stood still
  double ended = 0;
};
using CopyObserver = std::function<void(const OffloadCopy&)>;

/// Drives an optimizer whose state may live elsewhere. Offloaded, masters and moments are on the
/// CPU, which updates: the gradient goes there, the rounded parameter comes back. In files, the
/// state of a shard has memory only around its own update: the next shard's is read, and the last
/// one's written, while one is updated. What of the state is small (Adafactor's rows and columns)
/// stays in memory.
class OffloadedOptimizer {
 public:
  OffloadedOptimizer(std::unique_ptr<optim::Optimizer> optimizer, const OptimizerOffload& options);

  /// As Optimizer::add; the shard's tensors may be on any device. A parameter of a type that
  /// optimizers do not know (float16) is given its own float32 master in its place, and
  /// `rounded_into` gets what each update leaves there. A master that is wanted and not given, in
  /// host memory, is the parameter in float32, written when it is first needed: a first forward
  /// pass does not wait for it.
  void add(optim::Shard shard, const at::Tensor& rounded_into = {});
  /// Those masters are written now: before anybody but step() updates the shards.
  void write_masters();
  /// The parameters of the shard added last live in this file: they are loaded for an update, and
  /// stored after it.
  void keep_in(ShardFile& file, const at::Tensor& parameter);
  /// One update of every shard; `updated` is called after each, while its state is in memory.
  void step(
      double learning_rate, double gradient_scale, const std::function<void()>& updated = nullptr);
  /// As optim::Optimizer::put_averages, of every shard.
  void put_averages(bool are_put);
  /// Calls visit(piece) with the masters (of the name "master.PARAMETER", where they are apart) and
  /// the state of a shard, which may be written while it is called.
  void visit_state(int64_t index, const optim::StateVisitor& visit);

  /// Told every copy of a step that has ended. One at a time; empty takes it away.
  void set_copy_observer(CopyObserver observer) { copied_ = std::move(observer); }

  /// Whether state lies in files between its uses.
  bool uses_files() const { return file_ != nullptr; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  const optim::Optimizer& optimizer() const { return *optimizer_; }
  /// Bytes of masters and moments that have memory now, on whatever device, or on this one.
  int64_t bytes_in_memory() const;
  int64_t bytes_on(c10::Device device) const;

 private:
  /// A tensor that lies in the file.
  struct Stored {
    at::Tensor tensor;
    uint64_t offset = 0;
    AsyncFile::Ticket ticket = 0;
  };
  struct Place {
    at::Tensor device_parameter, device_gradient;  // where they are not the optimizer's own
    bool rounds =
        false;  // device_parameter is of a smaller type than the optimizer's, which is its master
    bool master_is_due = false;                   // it is the parameter, and not yet written
    ShardFile* parameter_file = nullptr;          // that holds `parameter`
    at::Tensor parameter;                         // the shard of the engine
    c10::Device device = c10::Device(c10::kCPU);  // where the state is updated
    int64_t bytes = 0;                            // of the state
    std::vector<Stored> stored;
    enum class State { kInMemory, kReading, kWriting, kInFile } state = State::kInMemory;
    double began = 0;                   // the read or write that is under way
    std::optional<c10::Event> copying;  // from or to the device
    double copy_began = 0;
  };

  /// The values of a shard's tensor in host memory that copies of its device reach.
  at::Tensor to_host(const at::Tensor& tensor) const;
  /// Whether the next shard, of so many elements, is to be offloaded.
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
  /// Waits for the place's tickets.
  void await(const Place& place, std::string_view what);
  /// Beside what the host does, where one is on a device; of a place, one after the other.
  void start_copy(Place& place, const at::Tensor& to, const at::Tensor& from);
  void finish_copy(Place& place, std::string_view what, const at::Tensor& copied);

  OptimizerOffload options_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<AsyncFile> file_;
  uint64_t file_end_ = 0;
  double due_ = 0;  // elements that the ratio has promised and no shard has taken yet
  std::vector<Place> places_;
  CopyObserver copied_;
  std::unique_ptr<ops::DeviceCopies> copies_;  // null: everything is in host memory
};

}  // namespace lockstep::parallel
