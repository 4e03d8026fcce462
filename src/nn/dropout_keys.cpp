// Dropout keys in device memory.
#include "nn/dropout_keys.h"

#include <ATen/ops/empty.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "ops/host_copies.h"

namespace lockstep::nn {

uint64_t dropout_key(uint64_t seed, int64_t step, int64_t sample, int64_t site) {
  const uint64_t of_step = derive_key(seed, static_cast<uint64_t>(step));
  return derive_key(
      derive_key(of_step, static_cast<uint64_t>(sample)), static_cast<uint64_t>(site));
}

void DropoutKeys::begin(uint64_t seed, int64_t step, const Tensor& samples) {
  seed_ = seed;
  step_ = step;
  samples_ = samples;
  ++begun_;
  if (sites_.empty()) {
    return;
  }
  const Tensor now = ops::to_device(numbers(), device_);
  if (!keys_.defined()) {
    keys_ = now.clone();
  } else {
    keys_.copy_(now);
  }
}

Tensor DropoutKeys::of_site(int64_t site) {
  const auto [found, is_new] = sites_.try_emplace(site, static_cast<int64_t>(sites_.size()));
  if (is_new && begun_ != 1) {
    sites_.erase(found);
    throw Error(ErrorKind::kInternal, "a dropout site did not occur in the first step");
  }
  return keys_.defined() ? keys_[found->second]
                         : ops::to_device(numbers()[found->second].clone(), device_);
}

Tensor DropoutKeys::numbers() const {
  const int64_t rows = samples_.numel();
  Tensor numbers = at::empty({static_cast<int64_t>(sites_.size()), rows}, at::kLong);
  const auto* sample = samples_.const_data_ptr<int64_t>();
  for (const auto& [site, row] : sites_) {
    auto* number = numbers[row].mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < rows; ++i) {
      number[i] = static_cast<int64_t>(dropout_key(seed_, step_, sample[i], site));
    }
  }
  return numbers;
}

}  // namespace lockstep::nn
