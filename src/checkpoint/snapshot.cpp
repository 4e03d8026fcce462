// Implements asynchronous copies of GPU tensors to the host.
#include "checkpoint/snapshot.h"

namespace lockstep::checkpoint {

void Snapshot::copy(const at::Tensor& to, const at::Tensor& from) {
  if (from.is_cpu()) {
    to.copy_(from);
    return;
  }
  if (copies_ == nullptr) {
    copies_ = std::make_unique<ops::DeviceCopies>(from.device());
  }
  if (sources_.empty()) {
    copies_->follow_compute();
  }
  sources_.push_back(from);
  copied_ = copies_->start(to, from);
}

void Snapshot::before_state_update() {
  if (copied_) {
    copies_->lead_compute(*copied_);
  }
}

void Snapshot::finish() {
  if (!sources_.empty()) {
    copied_->synchronize();
    sources_.clear();
  }
}

}  // namespace lockstep::checkpoint
