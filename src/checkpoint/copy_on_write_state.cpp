// Implements copy-on-write sharing of training state.
#include "checkpoint/copy_on_write_state.h"

#include <iterator>

#include <ATen/ATen.h>

namespace lockstep::checkpoint {
namespace {

const std::byte* begin_of(const at::Tensor& bytes) {
  return static_cast<const std::byte*>(bytes.const_data_ptr());
}

}  // namespace

bool CopyOnWriteState::lend(const at::Tensor& from, const at::Tensor& copy) {
  const std::scoped_lock lock(mutex_);
  const std::byte* const begin = begin_of(from);
  const auto next = parts_.lower_bound(begin);
  const bool meets_next = next != parts_.end() && next->first < begin + from.numel();
  const bool meets_last = next != parts_.begin() &&
                          std::prev(next)->first + std::prev(next)->second.from.numel() > begin;
  if (meets_next || meets_last) {
    return false;
  }
  parts_.emplace_hint(next, begin, Part{from, copy});
  return true;
}

void CopyOnWriteState::before_state_update() {
  const at::NoGradGuard no_gradient;
  const std::scoped_lock lock(mutex_);
  for (auto& [begin, part] : parts_) {
    const int64_t left = part.from.numel() - part.read;
    if (!part.copied && left > 0) {
      part.copy.narrow(0, part.read, left).copy_(part.from.narrow(0, part.read, left));
    }
    part.copied = true;
  }
}

void CopyOnWriteState::end() {
  const std::scoped_lock lock(mutex_);
  parts_.clear();
}

void CopyOnWriteState::read(
    const std::byte* from, int64_t count, const std::function<void(const std::byte*)>& body) {
  const std::scoped_lock lock(mutex_);
  const auto next = parts_.upper_bound(from);
  if (next == parts_.begin() ||
      std::prev(next)->first + std::prev(next)->second.from.numel() <= from) {
    body(from);
    return;
  }
  Part& part = std::prev(next)->second;
  const int64_t at = from - begin_of(part.from);
  body(part.copied ? begin_of(part.copy) + at : from);
  if (at == part.read) {
    part.read += count;
  }
}

}  // namespace lockstep::checkpoint
