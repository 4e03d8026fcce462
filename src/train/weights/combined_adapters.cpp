// Combines several adapters into one.
#include "train/weights/combined_adapters.h"

#include <cmath>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "base/error.h"
#include "base/format.h"

namespace lockstep::train {
namespace {

enum class Factor { kA, kB };

struct Part {
  model::Adapters adapters;
  std::shared_ptr<const AdapterValues> values;
  double weight = 1;

  /// Returns the adapter of a layer, or null if it has none.
  const model::Adapter* find(const std::string& layer) const {
    const auto found = adapters.of_layers.find(layer);
    return found == adapters.of_layers.end() ? nullptr : &found->second;
  }
};

std::vector<Part> open_parts(const AdapterRequest& request, const model::ModelConfig& model) {
  std::vector<Part> parts;
  for (const AdapterRequest::Part& each : request.parts) {
    checkpoint::TensorFiles files = open_adapter(each.folder);
    model::Adapters adapters =
        model::resolve_adapters(each.config, model, model::AdapterOrigin::kSaved, ranks_of(files));
    auto values = std::make_shared<const SavedAdapterValues>(std::move(files), adapters, model);
    parts.push_back({std::move(adapters), std::move(values), each.weight});
  }
  return parts;
}

/// Factors of the combined adapter. They are computed from the whole factors of the parts, which
/// are small.
class CombinedValues final : public AdapterValues {
 public:
  CombinedValues(
      std::vector<Part> parts, AdapterRequest::Combination combination, const model::Adapters& made)
      : parts_(std::move(parts)),
        combination_(combination) {
    for (const auto& [layer, adapter] : made.of_layers) {
      places_[adapter.parameters[0].name] = {layer, Factor::kA};
      places_[adapter.parameters[1].name] = {layer, Factor::kB};
    }
  }

  bool has(const std::string& name) const override { return places_.count(name) > 0; }
  void fill(
      const std::string& name,
      const parallel::ShardedParameter& parameter,
      int64_t begin,
      const at::Tensor& values) const override {
    const auto& [layer, factor] = places_.at(name);
    copy_part(whole(layer, factor), parameter, begin, values);
  }

 private:
  at::Tensor whole(const std::string& layer, Factor factor) const {
    const bool is_stacked = combination_ == AdapterRequest::Combination::kCat;
    std::vector<at::Tensor> factors;
    for (const Part& part : parts_) {
      if (const model::Adapter* adapter = part.find(layer)) {
        const model::ParameterSpec& spec = adapter->parameters[factor == Factor::kA ? 0 : 1];
        factors.push_back(at::empty(spec.shape, at::kFloat));
        part.values->fill(spec.name, {spec.shape, {}}, 0, factors.back());
        const double share = part.weight * adapter->scale;
        if (!is_stacked) {
          const double root = std::sqrt(std::abs(share));
          factors.back().mul_(factor == Factor::kA ? std::copysign(root, share) : root);
        } else if (factor == Factor::kA) {
          factors.back().mul_(share);
        }
      }
    }
    return is_stacked ? at::cat(factors, factor == Factor::kA ? 0 : 1) : at::stack(factors).sum(0);
  }

  std::vector<Part> parts_;
  AdapterRequest::Combination combination_;
  std::map<std::string, std::pair<std::string, Factor>> places_;
};

/// Adds a part's adapter of one layer to the layer's combined adapter.
void add(
    model::Adapters& made,
    const std::string& layer,
    model::Adapter adapter,
    AdapterRequest::Combination combination) {
  adapter.scale = 1;
  adapter.dropout = 0;
  const int64_t rank = adapter.rank;
  const auto [found, is_first] = made.of_layers.emplace(layer, std::move(adapter));
  if (is_first) {
    return;
  }
  model::Adapter& before = found->second;
  if (before.of_tied_head != adapter.of_tied_head) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("some adapters of {} also apply to the tied head, others do not", layer),
        "use them one at a time");
  }
  if (combination == AdapterRequest::Combination::kCat) {
    before.rank += rank;
    before.parameters[0].shape[0] = before.rank;
    before.parameters[1].shape[1] = before.rank;
  } else if (before.rank != rank) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "--adapter-combination linear: {} has adapters of ranks {} and {}, whose factors "
            "cannot be summed",
            layer,
            before.rank,
            rank),
        "remove it: cat, the default, supports different ranks");
  }
}

}  // namespace

CombinedAdapters combine(const AdapterRequest& request, const model::ModelConfig& model) {
  std::vector<Part> parts = open_parts(request, model);
  CombinedAdapters result;
  result.adapters.config = request.config;
  for (const Part& part : parts) {
    for (const auto& [layer, adapter] : part.adapters.of_layers) {
      add(result.adapters, layer, adapter, request.combination);
    }
    result.adapters.file_names.insert(
        part.adapters.file_names.begin(), part.adapters.file_names.end());
  }
  result.values = std::make_shared<const CombinedValues>(
      std::move(parts), request.combination, result.adapters);
  return result;
}

}  // namespace lockstep::train
