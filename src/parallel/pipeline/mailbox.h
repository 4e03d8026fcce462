// Tuples of tensors between the ranks of a pipeline. The shapes and types of a message are told
// once: the first time, a header goes ahead of it; both sides then know them for every message that
// has the same key. A rank begins to receive what another sends it in the order in which that one
// sends, which schedules tell: the order in which it needs them may be another.
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

/// The layouts of a tuple; `requires_grad` holds for floating tensors alone.
Layouts layouts_of(const Tensors& tensors);

/// Activations that `stage` takes for a micro-batch, or the gradients of them.
struct Message {
  int stage = 0;
  int micro_batch = 0;
  bool is_gradient = false;
  auto operator<=>(const Message&) const = default;
};

/// One thread uses it. Sends never wait; what is sent is kept until it has left. Where a rank is
/// lost, every function throws Error (peer lost) that names it.
class Mailbox {
 public:
  /// At most so many tensors go between two stages.
  static constexpr size_t kMaxTensors = 31;

  /// `rank_of_stage`: of the pipeline's stages. Every rank of `group` must call; may block until
  /// all have.
  Mailbox(comm::Communicator& group, c10::Device device, const std::vector<int>& rank_of_stage);

  /// Begins a run of a schedule. `signatures` [micro-batches] stand for the micro-batches' shapes:
  /// equal signatures, equal layouts. `coming`: what each rank will send to this one, in its order.
  void begin(
      std::span<const uint64_t> signatures, const std::map<int, std::vector<Message>>& coming);

  /// To `rank`: the outputs of the stage before, or the gradients of those inputs that require any.
  /// Error (config): too many tensors, or other layouts than those of an earlier message of the
  /// same stage, micro-batch and signature. `taken_at` is told to `sent_until`.
  void send(int rank, const Message& message, const Tensors& tensors, int taken_at);
  /// Begins to receive it, and what `rank` sends before it, as far as layouts are known; does not
  /// wait.
  void expect(int rank, const Message& message);
  /// Waits for it. Activations are leaves, which require gradients where the sender's did.
  Tensors receive(int rank, const Message& message);

  /// `rank` has done its actions before `position`: what was sent to it for those has been taken.
  void sent_until(int rank, int position);
  /// Waits until everything has left.
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
    size_t begun = 0;  // so many of them are being received, or were
  };
  struct Sent {
    int rank, taken_at;
    Tensors tensors;
    comm::Pending pending;
  };
  enum class Unknown { kWait, kStop };  // if the layouts of what comes next are not known

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
