#include "parallel/pipeline/mailbox.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {
namespace {

constexpr int64_t kHeaderNumbers = 512;
constexpr int kTagsAMessage = 32;  // the header and the tensors

Tensor header_of(const Layouts& layouts) {
  Tensor header = at::zeros({kHeaderNumbers}, at::kLong);
  auto* numbers = header.data_ptr<int64_t>();
  const auto* const end = numbers + kHeaderNumbers;
  const auto put = [&](int64_t number) {
    if (numbers == end) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("the {} tensors between two stages have too many dims", layouts.size()),
          "send fewer tensors from stage to stage");
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

/// Names the other end where `body` finds that it is gone.
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
            "rank {} of the pipeline is lost to rank {}: {}", rank, group.rank(), error.message()),
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

Mailbox::Mailbox(comm::Communicator& group, c10::Device device, int stages)
    : group_(group),
      device_(device),
      stages_(stages) {}

int Mailbox::tag(const MessageKey& key, bool is_gradient, size_t part) const {
  const int message = (key.micro_batch * stages_ + key.stage) * 2 + (is_gradient ? 1 : 0);
  return message * kTagsAMessage + static_cast<int>(part);
}

comm::Pending Mailbox::start(int rank, const std::vector<comm::P2p>& transfers) {
  return naming(group_, rank, [&] { return group_.exchange(transfers); });
}

void Mailbox::wait(int rank, comm::Pending& pending) {
  naming(group_, rank, [&] { pending.wait(); });
}

comm::Pending Mailbox::start_receive(
    int rank, const MessageKey& key, bool is_gradient, const Tensors& into) {
  std::vector<comm::P2p> transfers;
  for (size_t i = 0; i < into.size(); ++i) {
    transfers.push_back(
        {comm::P2p::Direction::kReceive, into[i], rank, tag(key, is_gradient, i + 1)});
  }
  return start(rank, transfers);
}

void Mailbox::start_send(
    int rank,
    const MessageKey& key,
    bool is_gradient,
    const std::optional<Tensor>& header,
    const Tensors& tensors,
    int taken_at) {
  Sent sent{rank, taken_at, {}, {}};
  std::vector<comm::P2p> transfers;
  if (header) {
    sent.tensors.push_back(*header);
    transfers.push_back({comm::P2p::Direction::kSend, *header, rank, tag(key, is_gradient, 0)});
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    sent.tensors.push_back(tensors[i].detach().contiguous());
    transfers.push_back(
        {comm::P2p::Direction::kSend, sent.tensors.back(), rank, tag(key, is_gradient, i + 1)});
  }
  sent.pending = start(rank, transfers);
  sent_.push_back(std::move(sent));
}

void Mailbox::send_activations(
    int rank, const MessageKey& key, const Tensors& outputs, int taken_at) {
  if (outputs.size() > kMaxTensors) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("stage {} gives {} tensors to the next", key.stage - 1, outputs.size()),
        fmt::format("at most {} can go between two stages", kMaxTensors));
  }
  const Layouts layouts = layouts_of(outputs);
  const auto [found, is_new] = known_.emplace(key, layouts);
  if (!is_new && found->second != layouts) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "stage {} gave {} for a micro-batch, and now {} for one of the same shape",
            key.stage - 1,
            text_of(found->second),
            text_of(layouts)),
        "a stage's output shapes must follow from the shapes of the micro-batch");
  }
  start_send(
      rank,
      key,
      /*is_gradient=*/false,
      is_new ? std::optional(header_of(layouts)) : std::nullopt,
      outputs,
      taken_at);
}

void Mailbox::expect_activations(int rank, const MessageKey& key) {
  const auto [found, is_new] = activations_.try_emplace({key.stage, key.micro_batch});
  if (!is_new) {
    return;
  }
  Arrival& arrival = found->second;
  const auto known = known_.find(key);
  if (known != known_.end()) {
    arrival.tensors = allocate(known->second, device_);
    arrival.pending = start_receive(rank, key, /*is_gradient=*/false, arrival.tensors);
    return;
  }
  arrival.header = at::empty({kHeaderNumbers}, at::kLong);
  arrival.pending = start(
      rank,
      {{comm::P2p::Direction::kReceive, arrival.header, rank, tag(key, /*is_gradient=*/false, 0)}});
}

Tensors Mailbox::receive_activations(int rank, const MessageKey& key) {
  expect_activations(rank, key);
  auto node = activations_.extract({key.stage, key.micro_batch});
  Arrival& arrival = node.mapped();
  wait(rank, arrival.pending);
  if (arrival.header.defined()) {
    const Layouts layouts = read_header(arrival.header);
    known_.insert_or_assign(key, layouts);
    arrival.tensors = allocate(layouts, device_);
    arrival.pending = start_receive(rank, key, /*is_gradient=*/false, arrival.tensors);
    wait(rank, arrival.pending);
  }
  const Layouts& layouts = known_.at(key);
  for (size_t i = 0; i < layouts.size(); ++i) {
    arrival.tensors[i].set_requires_grad(layouts[i].requires_grad);
  }
  return std::move(arrival.tensors);
}

void Mailbox::send_gradients(
    int rank, const MessageKey& key, const Tensors& gradients, int taken_at) {
  if (!gradients.empty()) {
    start_send(rank, key, /*is_gradient=*/true, std::nullopt, gradients, taken_at);
  }
}

void Mailbox::expect_gradients(int rank, const MessageKey& key, const Layouts& outputs) {
  const auto [found, is_new] = gradients_.try_emplace({key.stage, key.micro_batch});
  if (is_new) {
    found->second.tensors = allocate(with_gradient(outputs), device_);
    found->second.pending = start_receive(rank, key, /*is_gradient=*/true, found->second.tensors);
  }
}

Tensors Mailbox::receive_gradients(int rank, const MessageKey& key, const Layouts& outputs) {
  expect_gradients(rank, key, outputs);
  auto node = gradients_.extract({key.stage, key.micro_batch});
  wait(rank, node.mapped().pending);
  return std::move(node.mapped().tensors);
}

void Mailbox::sent_until(int rank, int position) {
  std::erase_if(sent_, [&](Sent& sent) {
    if (sent.rank != rank || sent.taken_at >= position) {
      return false;
    }
    wait(rank, sent.pending);  // it was taken: this returns at once
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
