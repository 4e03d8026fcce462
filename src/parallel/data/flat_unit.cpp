// Lays out parameters in flat buffers.
#include "parallel/data/flat_unit.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "ops/device_copies.h"
#include "ops/host_memory.h"
#include "parallel/offload/shard_file.h"

namespace lockstep::parallel {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Parameters that will form one flat unit.
struct FlatGroup {
  std::vector<NamedParameter> parameters;
  std::vector<size_t> units;  // in descending order
  std::vector<std::string> names;
  bool persistent = true;
  int64_t bytes = 0;
};

/// Groups parameters from the last unit to the first, which is the order in which gradients become
/// ready.
class Grouping {
 public:
  explicit Grouping(const FlatOptions& options) : options_(options) {}

  void add(size_t index, const ParameterUnit& unit) {
    std::map<Key, FlatGroup> parts;
    for (const NamedParameter& p : unit.parameters) {
      if (p.alone) {
        closed_.push_back({{p}, {index}, {p.name}, options_.zero_stage < 3});
        continue;
      }
      const bool stays = options_.zero_stage < 3 || p.weights() < options_.persistence_threshold;
      FlatGroup& part = parts[{
          p.tensor.scalar_type(), p.tensor.requires_grad(), stays, number_of(p.summed_over)}];
      part.parameters.push_back(p);
      part.persistent = stays;
      part.bytes += p.tensor.numel() *
                    static_cast<int64_t>(
                        c10::elementSize(options_.gradient_type.value_or(p.tensor.scalar_type())));
    }
    for (auto& [key, part] : parts) {
      join(key, index, unit.name, std::move(part));
    }
  }

  std::vector<FlatGroup> take() {
    for (auto& [key, group] : open_) {
      closed_.push_back(std::move(group));
    }
    // A group's gradients are complete when those of its first unit are.
    std::stable_sort(closed_.begin(), closed_.end(), [](const FlatGroup& a, const FlatGroup& b) {
      return a.units.back() > b.units.back();
    });
    return std::move(closed_);
  }

 private:
  using Key = std::tuple<at::ScalarType, bool, bool, size_t>;  // type, trainable, persistent, index
                                                               // of summed_over

  /// Returns the index of the process group that also reduces this gradient. The index must be the
  /// same on all ranks, because it determines the order of flat units.
  size_t number_of(comm::Communicator* summed_over) {
    const auto found = std::find(groups_.begin(), groups_.end(), summed_over);
    const auto number = static_cast<size_t>(found - groups_.begin());
    if (found == groups_.end()) {
      groups_.push_back(summed_over);
    }
    return number;
  }

  void join(const Key& key, size_t index, const std::string& name, FlatGroup part) {
    part.units = {index};
    part.names = {name};
    const auto found = open_.find(key);
    if (found == open_.end()) {
      open_.emplace(key, std::move(part));
      return;
    }
    FlatGroup& group = found->second;
    const bool fits = options_.zero_stage < 3 ? group.bytes + part.bytes <= options_.bucket_bytes
                                              : part.persistent;
    if (!fits) {
      closed_.push_back(std::exchange(group, std::move(part)));
      return;
    }
    std::move(part.parameters.begin(), part.parameters.end(), std::back_inserter(group.parameters));
    group.units.push_back(index);
    group.names.push_back(name);
    group.bytes += part.bytes;
  }

  const FlatOptions& options_;
  std::vector<comm::Communicator*> groups_{nullptr};
  std::map<Key, FlatGroup> open_;
  std::vector<FlatGroup> closed_;
};

/// Allocates memory for a shard that is not a slice of the whole buffer.
Tensor home_of_shard(const Tensor& slice, const FlatOptions& options) {
  const bool moves = options.offload_parameters && !slice.is_cpu();
  if (!moves) {
    return at::empty_like(slice);
  }
  // Shards in files repeatedly free their memory, so libtorch must own it.
  return options.file != nullptr
             ? at::empty_like(slice, at::TensorOptions(at::kCPU).pinned_memory(true))
             : ops::host_like(slice);
}

/// Fills the shard and makes the parameters views of `full`.
void take_values(FlatUnit& flat, int64_t part, const FlatOptions& options) {
  for (FlatUnit::Entry& entry : flat.entries) {
    const Tensor view =
        flat.full.narrow(0, entry.offset, entry.count).view(entry.parameter.sizes());
    if (!options.source) {
      view.copy_(entry.parameter);
    }
    // set_data keeps the parameter's identity, hooks and version counter, so autograd does not
    // treat a gather into `full` as a modification of the parameter.
    entry.parameter.set_data(view);
  }
  const Tensor slice = flat.full.narrow(0, flat.shard_begin, part);
  if (!options.source) {
    flat.clear_gaps(flat.full);
    options.agree(flat.full);
    flat.shard = flat.persistent ? slice : home_of_shard(slice, options);
    flat.shard.copy_(slice);
  } else {
    flat.shard = flat.persistent ? slice : home_of_shard(slice, options).zero_();
    for (const optim::Segment& segment : flat.shard_layout()) {
      if (segment.count > 0) {
        options.source(
            segment.parameter, segment.begin, flat.shard.narrow(0, segment.offset, segment.count));
      }
    }
  }
  set_allocated(flat.full, flat.persistent);
  if (options.file != nullptr && !flat.persistent) {
    options.file->put(flat.shard);
  }
}

/// Allocates the buffers of a flat unit and makes the parameters views of them.
FlatUnit flatten(FlatGroup group, const FlatOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<NamedParameter>& parameters = group.parameters;
  std::stable_sort(
      parameters.begin(), parameters.end(), [](const NamedParameter& a, const NamedParameter& b) {
        return a.rule < b.rule;
      });
  FlatUnit flat;
  flat.name = group.names.size() == 1 ? group.names.front()
                                      : group.names.back() + " to " + group.names.front();
  flat.trainable = parameters.front().tensor.requires_grad();
  flat.persistent = group.persistent;
  flat.alone = parameters.front().alone;
  flat.summed_over = parameters.front().summed_over;
  flat.lowest_unit = static_cast<int64_t>(group.units.back());
  flat.replicated = options.zero_stage == 0 || (!flat.trainable && options.zero_stage < 3);
  int64_t total = 0;
  for (const NamedParameter& p : parameters) {
    flat.entries.push_back({p.name, p.tensor, total, p.tensor.numel(), p.rule});
    flat.weights += p.weights();
    total = round_up(total + p.tensor.numel(), options.alignment);
  }
  const int64_t shards = flat.replicated ? 1 : options.ranks;
  const int64_t part = round_up((total + shards - 1) / shards, options.alignment);
  flat.shard_begin = flat.replicated ? 0 : options.rank * part;

  const auto type = parameters.front().tensor.options().requires_grad(false);
  // Elements between parameters must be zero.
  flat.full = options.source && flat.persistent ? ops::new_zeros(part * shards, type)
                                                : at::empty({part * shards}, type);
  take_values(flat, part, options);
  if (flat.trainable) {
    const auto of_gradients =
        type.dtype(options.gradient_type.value_or(c10::typeMetaToScalarType(type.dtype())));
    if (options.zero_stage < 2) {
      flat.gradient = ops::new_zeros(part * shards, of_gradients);
      flat.shard_gradient = flat.gradient.narrow(0, flat.shard_begin, part);
    } else {
      flat.shard_gradient = ops::new_zeros(part, of_gradients);
    }
  }
  return flat;
}

}  // namespace

std::vector<optim::Segment> FlatUnit::shard_layout() const {
  const int64_t end = shard_begin + shard.numel();
  std::vector<optim::Segment> layout;
  for (const Entry& entry : entries) {
    const int64_t first = std::clamp(shard_begin, entry.offset, entry.offset + entry.count);
    const int64_t last = std::clamp(end, first, entry.offset + entry.count);
    const bool empty = first >= last;
    layout.push_back(
        {.parameter = entry.name,
         .shape = entry.parameter.sizes().vec(),
         .begin = empty ? 0 : first - entry.offset,
         .offset = empty ? 0 : first - shard_begin,
         .count = empty ? 0 : last - first,
         .rule = entry.rule});
  }
  return layout;
}

void FlatUnit::clear_gaps(const Tensor& flat) const {
  int64_t end = 0;
  for (const Entry& entry : entries) {
    flat.narrow(0, end, entry.offset - end).zero_();
    end = entry.offset + entry.count;
  }
  flat.narrow(0, end, flat.numel() - end).zero_();
}

FlatUnits make_flat_units(const std::vector<ParameterUnit>& units, const FlatOptions& options) {
  Grouping grouping(options);
  for (size_t unit = units.size(); unit-- > 0;) {
    grouping.add(unit, units[unit]);
  }
  FlatUnits result;
  result.of_unit.resize(units.size());
  for (FlatGroup& group : grouping.take()) {
    for (const size_t unit : group.units) {
      result.of_unit[unit].push_back(result.flats.size());
    }
    result.flats.push_back(flatten(std::move(group), options));
  }
  const auto own = result.of_unit;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    std::vector<size_t>& flats = result.of_unit[unit];
    for (const size_t other : units[unit].also_uses) {
      flats.insert(flats.end(), own.at(other).begin(), own.at(other).end());
    }
    std::sort(flats.begin(), flats.end());
    flats.erase(std::unique(flats.begin(), flats.end()), flats.end());
  }
  return result;
}

}  // namespace lockstep::parallel
