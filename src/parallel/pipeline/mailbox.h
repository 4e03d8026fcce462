// Messages of tensor tuples between the ranks of a pipeline. Shapes and types are sent once, in a
// header before the first message with a key; later messages with the same key need no header. A
// rank posts receives in the order in which the peer sends. The schedule determines this order,
// which may differ from the order of use.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "comm/links.h"

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

/// Returns the layouts of a tuple. `requires_grad` applies only to floating-point tensors.
Layouts layouts_of(const Tensors& tensors);

/// Activations that `stage` receives for a micro-batch, or the gradients of these activations.
struct Message {
  int stage = 0;
  int micro_batch = 0;
  bool is_gradient = false;
  auto operator<=>(const Message&) const = default;
};

/// Not thread-safe. Sends never block; the mailbox keeps the tensors until they have been sent. If
/// a rank is lost, every function throws Error (peer lost) that names it.
class Mailbox {
 public:
  /// Maximum number of tensors per message.
  static constexpr size_t kMaxTensors = 31;

  /// `rank_of_stage` lists the rank of each pipeline stage. Must be called on every rank of
  /// `group`; may block until all ranks have called.
  Mailbox(comm::Communicator& group, c10::Device device, const std::vector<int>& rank_of_stage);

  /// Starts a run of a schedule. `signatures` [micro-batches] identify the shapes of the
  /// micro-batches; equal signatures mean equal layouts. `coming` lists the messages from each rank
  /// to this rank, in the order of sending.
  void begin(
      std::span<const uint64_t> signatures, const std::map<int, std::vector<Message>>& coming);

  /// Sends to `rank` the outputs of the previous stage, or the gradients of those inputs that
  /// require them. Throws Error (config) if there are too many tensors, or if the layouts differ
  /// from an earlier message with the same stage, micro-batch and signature. `taken_at` is the
  /// index of the action that receives the message; see `sent_until`.
  void send(int rank, const Message& message, const Tensors& tensors, int taken_at);
  /// Posts the receives for this message and for earlier messages from `rank` whose layouts are
  /// known. Does not block.
  void expect(int rank, const Message& message);
  /// Waits for the message and returns its tensors. Activations are leaves that require gradients
  /// if the sender's tensors did.
  Tensors receive(int rank, const Message& message);

  /// Records that `rank` has run all its actions before `position`, so that the messages for these
  /// actions have been received.
  void sent_until(int rank, int position);
  /// Waits until all sends have completed.
  void finish();

 private:
  struct Key {
    int stage, micro_batch;
    uint64_t signature;
    auto operator<=>(const Key&) const = default;
  };
  struct Arrival {
    Tensors tensors;
    comm::Pending pending;
  };
  struct Source {
    std::vector<Message> coming;
    size_t begun = 0;  // number of receives posted so far
  };
  struct Sent {
    int rank, taken_at;
    Tensors tensors;
    comm::Pending pending;
  };
  enum class Unknown { kWait, kStop };  // behavior if the layouts of the next message are unknown

  Key key_of(const Message& message) const;
  void wait(int rank, comm::Pending& pending);
  void start_send(int rank, Tensors tensors, int taken_at);
  void check_outputs(const Message& message, const Tensors& outputs) const;
  void receive_until(int rank, const Message& message, Unknown unknown);
  Layouts receive_header(int rank);

  comm::Communicator& group_;
  c10::Device device_;
  comm::Links links_;
  std::vector<uint64_t> signatures_;
  std::map<Key, Layouts> known_;
  std::map<int, Source> sources_;
  std::map<Message, Arrival> arrivals_;
  std::deque<Sent> sent_;
};

}  // namespace lockstep::parallel
