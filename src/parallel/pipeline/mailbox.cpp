// Point-to-point messages between pipeline stages.
#include "parallel/pipeline/mailbox.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kHeaderNumbers = 512;

Tensor header_of(const Layouts& layouts) {
  Tensor header = at::zeros({kHeaderNumbers}, at::kLong);
  auto* numbers = header.data_ptr<int64_t>();
  const auto* const end = numbers + kHeaderNumbers;
  const auto put = [&](int64_t number) {
    if (numbers == end) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "the {} tensors between two stages have too many dimensions in total",
              layouts.size()),
          "pass fewer tensors between stages");
    }
    *numbers++ = number;
  };
  put(static_cast<int64_t>(layouts.size()));
  for (const TensorLayout& layout : layouts) {
    put(static_cast<int64_t>(layout.type));
    put(layout.requires_grad ? 1 : 0);
    put(static_cast<int64_t>(layout.sizes.size()));
    for (const int64_t size : layout.sizes) {
      put(size);
    }
  }
  return header;
}

Layouts read_header(const Tensor& header) {
  const auto* numbers = header.data_ptr<int64_t>();
  Layouts layouts(static_cast<size_t>(*numbers++));
  for (TensorLayout& layout : layouts) {
    layout.type = static_cast<at::ScalarType>(*numbers++);
    layout.requires_grad = *numbers++ != 0;
    layout.sizes.resize(static_cast<size_t>(*numbers++));
    for (int64_t& size : layout.sizes) {
      size = *numbers++;
    }
  }
  return layouts;
}

std::string text_of(const Layouts& layouts) {
  std::string text;
  for (const TensorLayout& layout : layouts) {
    text += fmt::format(
        "{}{} [{}]{}",
        text.empty() ? "" : ", ",
        c10::toString(layout.type),
        fmt::join(layout.sizes, ", "),
        layout.requires_grad ? "" : " without gradient");
  }
  return "(" + text + ")";
}

Tensors allocate(const Layouts& layouts, c10::Device device) {
  Tensors tensors;
  for (const TensorLayout& layout : layouts) {
    tensors.push_back(
        at::empty(layout.sizes, at::TensorOptions().dtype(layout.type).device(device)));
  }
  return tensors;
}

Layouts with_gradient(const Layouts& layouts) {
  Layouts result;
  for (const TensorLayout& layout : layouts) {
    if (layout.requires_grad) {
      result.push_back(layout);
    }
  }
  return result;
}

/// Returns each ordered pair of ranks that hold neighboring stages once.
std::vector<std::pair<int, int>> neighbours(const std::vector<int>& rank_of_stage) {
  std::vector<std::pair<int, int>> pairs;
  for (size_t stage = 1; stage < rank_of_stage.size(); ++stage) {
    const int before = rank_of_stage[stage - 1], after = rank_of_stage[stage];
    for (const std::pair<int, int>& pair : {std::pair(before, after), std::pair(after, before)}) {
      if (before != after && std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) {
        pairs.push_back(pair);
      }
    }
  }
  return pairs;
}

/// Runs `body`. If it fails because the peer is lost, adds the peer's name to the error.
template <class Body>
auto naming(const comm::Communicator& group, int rank, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kPeerLost) {
      throw;
    }
    throw Error(
        ErrorKind::kPeerLost,
        fmt::format(
            "pipeline rank {} is unreachable from rank {}: {}",
            rank,
            group.rank(),
            error.message()),
        error.remedy());
  }
}

}  // namespace

Layouts layouts_of(const Tensors& tensors) {
  Layouts layouts;
  for (const Tensor& tensor : tensors) {
    layouts.push_back(
        {tensor.sizes().vec(),
         tensor.scalar_type(),
         tensor.is_floating_point() && tensor.requires_grad()});
  }
  return layouts;
}

Mailbox::Mailbox(
    comm::Communicator& group, c10::Device device, const std::vector<int>& rank_of_stage)
    : group_(group),
      device_(device),
      links_(group, device, neighbours(rank_of_stage)) {}

Mailbox::Key Mailbox::key_of(const Message& message) const {
  return {
      message.stage, message.micro_batch, signatures_.at(static_cast<size_t>(message.micro_batch))};
}

void Mailbox::begin(
    std::span<const uint64_t> signatures, const std::map<int, std::vector<Message>>& coming) {
  signatures_.assign(signatures.begin(), signatures.end());
  arrivals_.clear();
  sources_.clear();
  for (const auto& [rank, messages] : coming) {
    sources_[rank].coming = messages;
  }
}

void Mailbox::wait(int rank, comm::Pending& pending) {
  naming(group_, rank, [&] { pending.wait(); });
}

void Mailbox::start_send(int rank, Tensors tensors, int taken_at) {
  Sent sent{rank, taken_at, std::move(tensors), {}};
  sent.pending = naming(group_, rank, [&] { return links_.send(rank, sent.tensors); });
  sent_.push_back(std::move(sent));
}

void Mailbox::check_outputs(const Message& message, const Tensors& outputs) const {
  if (outputs.size() > kMaxTensors) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("stage {} outputs {} tensors", message.stage - 1, outputs.size()),
        fmt::format("stages can exchange at most {} tensors", kMaxTensors));
  }
  const auto found = known_.find(key_of(message));
  const Layouts layouts = layouts_of(outputs);
  if (found != known_.end() && found->second != layouts) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "stage {} returned {} for a micro-batch, but now {} for one of the same shape",
            message.stage - 1,
            text_of(found->second),
            text_of(layouts)),
        "a stage's output shapes must depend only on the shapes of the micro-batch");
  }
}

void Mailbox::send(int rank, const Message& message, const Tensors& tensors, int taken_at) {
  if (!message.is_gradient) {
    check_outputs(message, tensors);
    const auto [found, is_new] = known_.emplace(key_of(message), layouts_of(tensors));
    if (is_new) {
      start_send(rank, {header_of(found->second).to(device_)}, taken_at);
    }
  }
  Tensors sent;
  for (const Tensor& tensor : tensors) {
    sent.push_back(tensor.detach().contiguous());
  }
  start_send(rank, std::move(sent), taken_at);
}

Layouts Mailbox::receive_header(int rank) {
  const Tensor header =
      at::empty({kHeaderNumbers}, at::TensorOptions().dtype(at::kLong).device(device_));
  comm::Pending pending = naming(group_, rank, [&] { return links_.receive(rank, {&header, 1}); });
  wait(rank, pending);
  return read_header(header.to(at::kCPU));
}

void Mailbox::receive_until(int rank, const Message& message, Unknown unknown) {
  Source& source = sources_.at(rank);
  while (!arrivals_.contains(message)) {
    const Message& next = source.coming.at(source.begun);
    const Key key = key_of(next);
    auto known = known_.find(key);
    if (known == known_.end()) {
      if (unknown == Unknown::kStop) {
        return;
      }
      if (next.is_gradient) {
        throw Error(
            ErrorKind::kInternal,
            fmt::format("gradients for stage {} arrived before its forward pass", next.stage));
      }
      known = known_.emplace(key, receive_header(rank)).first;
    }
    Arrival arrival;
    arrival.tensors =
        allocate(next.is_gradient ? with_gradient(known->second) : known->second, device_);
    arrival.pending = naming(group_, rank, [&] { return links_.receive(rank, arrival.tensors); });
    arrivals_.emplace(next, std::move(arrival));
    ++source.begun;
  }
}

void Mailbox::expect(int rank, const Message& message) {
  receive_until(rank, message, Unknown::kStop);
}

Tensors Mailbox::receive(int rank, const Message& message) {
  receive_until(rank, message, Unknown::kWait);
  auto node = arrivals_.extract(message);
  wait(rank, node.mapped().pending);
  Tensors tensors = std::move(node.mapped().tensors);
  if (!message.is_gradient) {
    const Layouts& layouts = known_.at(key_of(message));
    for (size_t i = 0; i < layouts.size(); ++i) {
      tensors[i].set_requires_grad(layouts[i].requires_grad);
    }
  }
  return tensors;
}

void Mailbox::sent_until(int rank, int position) {
  std::erase_if(sent_, [&](Sent& sent) {
    if (sent.rank != rank || sent.taken_at >= position) {
      return false;
    }
    wait(rank, sent.pending);  // returns immediately, since the peer has received it
    return true;
  });
}

void Mailbox::finish() {
  while (!sent_.empty()) {
    wait(sent_.front().rank, sent_.front().pending);
    sent_.pop_front();
  }
}

}  // namespace lockstep::parallel
