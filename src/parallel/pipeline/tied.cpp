// Sums the gradients of a tied embedding and head.
#include "parallel/pipeline/tied.h"

#include <array>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

namespace lockstep::parallel {
namespace {

constexpr int kTag = std::numeric_limits<int>::max();  // differs from the tags of messages between
                                                       // stages

}  // namespace

void sum_tied_gradients(
    Tensor first, Tensor last, int first_rank, int last_rank, comm::Communicator& group) {
  const at::NoGradGuard no_grad;
  if (first.defined() && last.defined()) {
    first.add_(last);
    last.copy_(first);
    return;
  }
  const Tensor own = first.defined() ? first : last;
  if (!own.defined()) {
    return;
  }
  const int other = first.defined() ? last_rank : first_rank;
  const Tensor sent = own.contiguous(), received = at::empty_like(sent);
  const std::array<comm::P2p, 2> transfers{{
      {comm::P2p::Direction::kSend, sent, other, kTag},
      {comm::P2p::Direction::kReceive, received, other, kTag},
  }};
  group.exchange(transfers).wait();
  own.add_(received);
}

}  // namespace lockstep::parallel
