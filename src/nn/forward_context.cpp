// Inputs of a forward pass, and the tables that its blocks share.
#include "nn/forward_context.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>

#include "base/counter_random.h"
#include "base/error.h"
#include "base/format.h"
#include "model/rope.h"
#include "nn/dropout_keys.h"
#include "nn/key_value_cache.h"
#include "ops/host_copies.h"

namespace lockstep::nn {

Tensor relative_position_buckets(
    const Tensor& distance, Visibility visibility, const model::RelativePositions& positions) {
  const bool both = visibility == Visibility::kBoth;
  const int64_t buckets = both ? positions.buckets / 2 : positions.buckets;
  const Tensor far = both ? distance.abs() : distance.neg().clamp_min(0);
  const int64_t exact = buckets / 2;
  const double steps = static_cast<double>(buckets - exact);
  const double range =
      std::log(static_cast<double>(positions.max_distance) / static_cast<double>(exact));
  // Computed in float32 and in this order, as in training, because rounding determines the bucket
  // at an edge.
  const Tensor large =
      exact + (at::log(far.clamp_min(1).to(at::kFloat) / exact) / range * steps).to(at::kLong);
  const Tensor bucket = at::where(far < exact, far, large.clamp_max(buckets - 1));
  return both ? bucket + (distance > 0).to(at::kLong) * buckets : bucket;
}

bool takes_trees(const model::ModelConfig& config) {
  const bool is_plain =
      config.score_cap == 0 && !config.attention_sinks && !config.upcast_attention &&
      std::ranges::all_of(config.sliding_windows, [](int64_t w) { return w == 0; });
  return is_plain && !config.bidirectional && !config.is_encoder_decoder() &&
         !model::rope_depends_on_length(config);
}

ForwardContext::ForwardContext(const model::ModelConfig& config, ForwardInputs inputs)
    : config_(config),
      inputs_(std::move(inputs)),
      rotary_(inputs_.rotary_tables ? inputs_.rotary_tables : std::make_shared<RotaryTables>()) {
  const Tensor& ids = inputs_.ids;
  const auto fits = [&](const Tensor& other) {
    return !other.defined() || (other.scalar_type() == at::kLong && other.sizes() == ids.sizes());
  };
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.numel() == 0 ||
      !fits(inputs_.targets.tokens) || !fits(inputs_.positions)) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "a forward pass requires int64 ids [B, T], and targets and positions of the same "
            "shape; ids are {}",
            ids.defined() ? fmt::format("{}", fmt::join(ids.sizes(), "x")) : "missing"));
  }
  check_source();
  check_documents();
  length_ = ids.size(1);
  first_ = inputs_.cache == nullptr ? 0 : inputs_.cache->length();
  if (!inputs_.positions.defined()) {
    model::check_positions(config_, first_ + length_);
  } else if (model::position_limit(config_) && inputs_.positions.device().is_cpu()) {
    model::check_positions(config_, inputs_.positions.max().item<int64_t>() + 1);
  }
}

void ForwardContext::check_documents() const {
  const Tensor& starts = inputs_.document_starts;
  const Tensor& until = inputs_.seen_until;
  if (until.defined() && (!starts.defined() || until.sizes() != inputs_.ids.sizes() ||
                          until.sizes() != starts.sizes() || until.scalar_type() != at::kLong ||
                          !takes_trees(config_))) {
    throw Error(
        ErrorKind::kInternal,
        "rows with trees of sequences require int64 seen_until of the shape of the ids, document "
        "starts, and a decoder without sliding windows, score caps and attention sinks");
  }
  if (!starts.defined()) {
    return;
  }
  const int64_t whole = inputs_.whole_length > 0 ? inputs_.whole_length : inputs_.ids.size(1);
  const bool fits = starts.scalar_type() == at::kLong && starts.dim() == 2 &&
                    starts.size(0) == inputs_.ids.size(0) && starts.size(1) == whole &&
                    inputs_.positions.defined() && inputs_.cache == nullptr &&
                    !config_.is_encoder_decoder() && !model::rope_depends_on_length(config_);
  if (!fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "packed rows require int64 document starts [B, {}] and positions, a decoder whose "
            "rotary positions do not depend on the sequence length, and no cache; the starts are "
            "{}",
            whole,
            fmt::join(starts.sizes(), "x")));
  }
}

void ForwardContext::check_source() const {
  const Tensor& source = inputs_.source;
  const Tensor& mask = inputs_.source_mask;
  if (!config_.is_encoder_decoder() && !source.defined()) {
    return;
  }
  const bool fits =
      config_.is_encoder_decoder() && source.defined() && source.dim() == 2 &&
      source.scalar_type() == at::kLong && source.size(0) == inputs_.ids.size(0) &&
      source.numel() > 0 && inputs_.positions.defined() == inputs_.source_positions.defined() &&
      (!mask.defined() ||
       (mask.scalar_type() == at::kBool && mask.size(0) == source.size(0) &&
        mask.size(1) ==
            (inputs_.source_positions.defined() ? inputs_.whole_source_length : source.size(1))));
  if (!fits) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format(
            "a forward pass of {} {} requires int64 ids [B, T] {}; the source is {}",
            model::family_name(config_.family),
            config_.is_encoder_decoder() ? "(an encoder and a decoder)" : "(a decoder alone)",
            config_.is_encoder_decoder()
                ? "and a source [B, S], with an optional bool mask of that shape, and positions of "
                  "both if they are sequence slices"
                : "and no source",
            source.defined() ? fmt::format("{}", fmt::join(source.sizes(), "x")) : "missing"));
  }
}

const Rotary& ForwardContext::rotary(at::Device device, int64_t layer) const {
  const model::Rope& rope = config_.rope_of(layer);
  const std::tuple key(
      static_cast<int>(device.type()), static_cast<int>(device.index()), &rope != &config_.rope);
  const auto found = rotary_->find(key);
  if (found != rotary_->end()) {
    return found->second;
  }
  const auto floats = at::TensorOptions().dtype(at::kFloat).device(device);
  const Tensor& given = inputs_.positions;
  int64_t reach = first_ + length_;
  if (given.defined() && model::rope_depends_on_length(config_)) {
    reach = inputs_.whole_length > 0 ? inputs_.whole_length : given.max().item<int64_t>() + 1;
  }
  const auto table = model::rope_frequencies(config_, rope, reach);
  const Tensor frequencies = ops::to_device(at::tensor(table.frequencies, at::kFloat), device);
  const Tensor positions =
      given.defined() ? given.to(floats) : at::arange(first_, first_ + length_, floats);
  const Tensor angles = positions.unsqueeze(-1) * frequencies;  // [T, d] or [B, T, d]
  Rotary rotary{angles.cos(), angles.sin()};
  if (table.attention_factor != 1) {
    rotary.cos.mul_(table.attention_factor);
    rotary.sin.mul_(table.attention_factor);
  }
  return rotary_->emplace(key, std::move(rotary)).first->second;
}

Tensor ForwardContext::dropout_keys(int64_t site) const {
  const Tensor& samples = inputs_.samples;
  if (!samples.defined() || samples.numel() != inputs_.ids.size(0) ||
      samples.scalar_type() != at::kLong || !samples.device().is_cpu()) {
    throw Error(
        ErrorKind::kInternal, "dropout requires the sample number of each row, int64 on the CPU");
  }
  const Tensor& of_tokens = inputs_.token_samples;
  if (inputs_.dropout_keys != nullptr && !of_tokens.defined()) {
    return inputs_.dropout_keys->of_site(site);
  }
  Tensor keys = (of_tokens.defined() ? of_tokens : samples).clone(at::MemoryFormat::Contiguous);
  auto* key = keys.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < keys.numel(); i += of_tokens.defined() ? 2 : 1) {
    key[i] = static_cast<int64_t>(dropout_key(inputs_.seed, inputs_.step, key[i], site));
  }
  return keys;
}

Tensor ForwardContext::token_numbers(const Tensor& places) const {
  const Tensor& of_tokens = inputs_.token_samples;
  const int64_t rows = inputs_.samples.numel();
  const Tensor samples = of_tokens.defined()
                             ? of_tokens.index_select(1, places.clamp_max(of_tokens.size(1) - 1))
                             : at::stack(
                                   {inputs_.samples.unsqueeze(1).expand({rows, places.numel()}),
                                    places.unsqueeze(0).expand({rows, places.numel()})},
                                   2);  // [B, T, 2]
  Tensor numbers = at::empty({rows, places.numel()}, at::kLong);
  auto number = numbers.accessor<int64_t, 2>();
  const auto sample = samples.accessor<int64_t, 3>();
  for (int64_t row = 0; row < numbers.size(0); ++row) {
    for (int64_t t = 0; t < numbers.size(1); ++t) {
      number[row][t] = static_cast<int64_t>(derive_key(
          static_cast<uint64_t>(sample[row][t][0]), static_cast<uint64_t>(sample[row][t][1])));
    }
  }
  return numbers;
}

ForwardContext ForwardContext::of_tokens(const Tensor& numbers) const {
  ForwardContext rows = *this;
  rows.inputs_.ids = at::zeros({numbers.numel(), 1}, at::kLong);
  rows.inputs_.samples = numbers;
  rows.inputs_.token_samples = Tensor();
  rows.inputs_.dropout_keys = nullptr;
  return rows;
}

bool ForwardContext::encodes() const {
  return inputs_.source.defined() && (inputs_.cache == nullptr || first_ == 0);
}

Tensor ForwardContext::visible_source(at::Device device) const {
  const Tensor& mask = inputs_.source_mask;
  return mask.defined() ? mask.to(device).unsqueeze(1).unsqueeze(1) : Tensor();
}

std::pair<Tensor, Tensor> ForwardContext::places(Visibility visibility, at::Device device) const {
  const auto integers = at::TensorOptions().dtype(at::kLong).device(device);
  const auto range = [&](int64_t begin, int64_t end) { return at::arange(begin, end, integers); };
  const bool is_part = inputs_.source_positions.defined();
  if (visibility == Visibility::kBoth) {
    const int64_t length = inputs_.source.size(1);
    return is_part ? std::pair(
                         inputs_.source_positions.to(device), range(0, inputs_.whole_source_length))
                   : std::pair(range(0, length), range(0, length));
  }
  if (is_part) {  // all rows have the same positions
    return {inputs_.positions[0].to(device), range(0, inputs_.whole_length)};
  }
  return {range(first_, first_ + length_), range(0, first_ + length_)};
}

Tensor ForwardContext::visible_target(at::Device device) const {
  const auto [queries, keys] = places(Visibility::kCausal, device);
  return keys <= queries.unsqueeze(1);
}

const Tensor& ForwardContext::relative_buckets(Visibility visibility, at::Device device) const {
  const std::tuple key(
      visibility, static_cast<int>(device.type()), static_cast<int>(device.index()));
  const auto found = buckets_.find(key);
  if (found != buckets_.end()) {
    return found->second;
  }
  const auto [queries, keys] = places(visibility, device);
  const Tensor distance = keys - queries.unsqueeze(1);  // [T, S]
  return buckets_
      .emplace(key, relative_position_buckets(distance, visibility, config_.relative_positions))
      .first->second;
}

}  // namespace lockstep::nn
