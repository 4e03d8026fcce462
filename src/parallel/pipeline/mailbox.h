// Tuples of tensors between the ranks of a pipeline. The shapes and types of a message are told
// once: the first time, a header goes ahead of it; both sides then know them for every message that
// has the same key.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "comm/communicator.h"

namespace lockstep::parallel {

using at::Tensor;
using Tensors = std::vector<Tensor>;

struct TensorLayout {
  std::vector<int64_t> sizes;
  at::ScalarType type = at::kFloat;
  bool requires_grad = false;
  bool operator==(const TensorLayout&) const = default;
};
using Layouts = std::vector<TensorLayout>;

/// The layouts of a tuple; `requires_grad` holds for floating tensors alone.
Layouts layouts_of(const Tensors& tensors);

/// Activations that `stage` takes for a micro-batch. `signature` stands for the shapes of the
/// micro-batch: equal signatures, equal layouts.
struct MessageKey {
  int stage = 0;
  int micro_batch = 0;
  uint64_t signature = 0;
  auto operator<=>(const MessageKey&) const = default;
};

/// One thread uses it. Sends never wait; what is sent is kept until it has left. Where a rank is
/// lost, every function throws Error (peer lost) that names it.
class Mailbox {
 public:
  /// At most so many tensors go between two stages.
  static constexpr size_t kMaxTensors = 31;

  Mailbox(comm::Communicator& group, c10::Device device, int stages);

  /// Activations to `rank`. Error (config): too many tensors, or other layouts than those of an
  /// earlier message of this key. `taken_at` is told to `sent_until`.
  void send_activations(int rank, const MessageKey& key, const Tensors& outputs, int taken_at);
  /// Begins to receive, where that was not begun already; does not wait.
  void expect_activations(int rank, const MessageKey& key);
  /// Waits for them. They are leaves, which require gradients where the sender's did.
  Tensors receive_activations(int rank, const MessageKey& key);

  /// Gradients of what `stage` took, to the rank before: those of the inputs that require any.
  void send_gradients(int rank, const MessageKey& key, const Tensors& gradients, int taken_at);
  void expect_gradients(int rank, const MessageKey& key, const Layouts& outputs);
  Tensors receive_gradients(int rank, const MessageKey& key, const Layouts& outputs);

  /// `rank` has done its actions before `position`: what was sent to it for those has been taken.
  void sent_until(int rank, int position);
  /// Waits until everything has left.
  void finish();

 private:
  struct Arrival {
    Tensor header;    // while its layouts are not known
    Tensors tensors;  // else
    comm::Pending pending;
  };
  struct Sent {
    int rank, taken_at;
    Tensors tensors;
    comm::Pending pending;
  };
  using Arrivals = std::map<std::pair<int, int>, Arrival>;  // by stage and micro-batch

  int tag(const MessageKey& key, bool is_gradient, size_t part) const;
  comm::Pending start(int rank, const std::vector<comm::P2p>& transfers);
  void wait(int rank, comm::Pending& pending);
  comm::Pending start_receive(
      int rank, const MessageKey& key, bool is_gradient, const Tensors& into);
  void start_send(
      int rank,
      const MessageKey& key,
      bool is_gradient,
      const std::optional<Tensor>& header,
      const Tensors& tensors,
      int taken_at);

  comm::Communicator& group_;
  c10::Device device_;
  int stages_;
  std::map<MessageKey, Layouts> known_;
  Arrivals activations_, gradients_;
  std::deque<Sent> sent_;
};

}  // namespace lockstep::parallel
