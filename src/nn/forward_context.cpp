#include "nn/forward_context.h"

#include <ATen/ATen.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "model/rope.h"
#include "nn/key_value_cache.h"

namespace lockstep::nn {

Tensor shift_labels(const Tensor& labels) {
  return at::cat(
      {labels.narrow(1, 1, labels.size(1) - 1),
       at::full({labels.size(0), 1}, -100, labels.options())},
      1);
}

ForwardContext::ForwardContext(const model::ModelConfig& config, ForwardInputs inputs)
    : config_(config),
      inputs_(std::move(inputs)) {
  const Tensor& ids = inputs_.ids;
  const auto fits = [&](const Tensor& other) {
    return !other.defined() || (other.scalar_type() == at::kLong && other.sizes() == ids.sizes());
  };
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.numel() == 0 ||
      !fits(inputs_.labels) || !fits(inputs_.targets) || !fits(inputs_.positions)) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "a forward pass needs int64 ids [B, T], and labels and positions of the same shape; "
            "ids are {}",
            ids.defined() ? fmt::format("{}", fmt::join(ids.sizes(), "x")) : "missing"));
  }
  length_ = ids.size(1);
  first_ = inputs_.cache == nullptr ? 0 : inputs_.cache->length();
  if (!inputs_.positions.defined()) {
    model::check_positions(config_, first_ + length_);
  } else if (model::position_limit(config_) && inputs_.positions.device().is_cpu()) {
    model::check_positions(config_, inputs_.positions.max().item<int64_t>() + 1);
  }
}

const Rotary& ForwardContext::rotary(at::Device device) const {
  const std::pair key(static_cast<int>(device.type()), static_cast<int>(device.index()));
  const auto found = rotary_.find(key);
  if (found != rotary_.end()) {
    return found->second;
  }
  const auto floats = at::TensorOptions().dtype(at::kFloat).device(device);
  const Tensor& given = inputs_.positions;
  int64_t reach = first_ + length_;
  if (given.defined() && model::rope_depends_on_length(config_)) {
    reach = inputs_.whole_length > 0 ? inputs_.whole_length : given.max().item<int64_t>() + 1;
  }
  const auto table = model::rope_frequencies(config_, reach);
  const Tensor frequencies = at::tensor(table.frequencies, at::kFloat).to(device);
  const Tensor positions =
      given.defined() ? given.to(floats) : at::arange(first_, first_ + length_, floats);
  const Tensor angles = positions.unsqueeze(-1) * frequencies;  // [T, d] or [B, T, d]
  Rotary rotary{angles.cos(), angles.sin()};
  if (table.attention_factor != 1) {
    rotary.cos.mul_(table.attention_factor);
    rotary.sin.mul_(table.attention_factor);
  }
  return rotary_.emplace(key, std::move(rotary)).first->second;
}

Tensor ForwardContext::dropout_keys(int64_t site) const {
  const Tensor& samples = inputs_.samples;
  if (!samples.defined() || samples.numel() != inputs_.ids.size(0) ||
      samples.scalar_type() != at::kLong || !samples.device().is_cpu()) {
    throw Error(
        ErrorKind::kInternal, "dropout needs the number of each row's sample, int64 on the CPU");
  }
  const Tensor numbers = samples.contiguous();
  const auto* number = numbers.const_data_ptr<int64_t>();
  Tensor keys = at::empty({samples.numel()}, at::kLong);
  auto* key = keys.mutable_data_ptr<int64_t>();
  const uint64_t of_step = derive_key(inputs_.seed, static_cast<uint64_t>(inputs_.step));
  for (int64_t row = 0; row < samples.numel(); ++row) {
    const uint64_t of_sample = derive_key(of_step, static_cast<uint64_t>(number[row]));
    key[row] = static_cast<int64_t>(derive_key(of_sample, static_cast<uint64_t>(site)));
  }
  return keys;
}

}  // namespace lockstep::nn
