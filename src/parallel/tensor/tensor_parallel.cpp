#include "parallel/tensor/tensor_parallel.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "parallel/ranks/head_split.h"
#include "parallel/tensor/layers.h"

namespace lockstep::parallel {
namespace {

using mesh::Cut;
using mesh::Range;

/// What of a linear layer is cut: its outputs and the bias, or its inputs.
enum class Rule { kQueries, kKeyValues, kPackedHeads, kHeadsIn, kWidthOut, kWidthIn };

/// Megatron's split, by the role of a slot.
Rule rule_of(const std::string& role) {
  static const std::map<std::string, Rule> table{
      {"query_key_value", Rule::kPackedHeads},
      {"query", Rule::kQueries},
      {"key", Rule::kKeyValues},
      {"value", Rule::kKeyValues},
      {"attention_out", Rule::kHeadsIn},
      {"cross_query", Rule::kQueries},
      {"cross_key", Rule::kKeyValues},
      {"cross_value", Rule::kKeyValues},
      {"cross_attention_out", Rule::kHeadsIn},
      {"mlp_gate", Rule::kWidthOut},
      {"mlp_up", Rule::kWidthOut},
      {"mlp_down", Rule::kWidthIn},
  };
  const auto found = table.find(role);
  if (found == table.end()) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("tensor parallelism has no rule for the layer '{}'", role),
        "leave parallel.tensor 1 for this model");
  }
  return found->second;
}

/// Whether the layer's input is what the junction before it lets in, and nothing else: its weight's
/// gradient is then made while the input's is summed.
bool takes_the_junction(const std::string& role) {
  static const std::set<std::string> roles{
      "query_key_value", "query", "key", "value", "mlp_gate", "mlp_up"};
  return roles.count(role) > 0;
}

void check_sizes(const model::ModelConfig& config, int ranks) {
  std::string problems;
  int64_t most = config.heads;
  const auto check = [&](int64_t size, const char* what) {
    most = std::min(most, size);
    if (size < ranks) {
      problems += fmt::format(
          "{}parallel.tensor is {} and the model has {} {}",
          problems.empty() ? "" : "\n",
          ranks,
          size,
          what);
    }
  };
  check(config.heads, "query heads");
  check(config.intermediate_size, "numbers in the width of its MLP");
  check(config.vocab_size, "tokens in its vocabulary");
  if (!problems.empty()) {
    throw Error(ErrorKind::kConfig, problems, fmt::format("give parallel.tensor at most {}", most));
  }
}

class Swap final {
 public:
  Swap(nn::LanguageModel& model, Axes& axes, SequenceSharding sequence)
      : config_(model.config()),
        heads_(split_heads(config_, axes.coordinate().tensor, axes.mesh().tensor)),
        region_{c10::make_intrusive<TensorGroup>(axes.along(mesh::Axis::kTensor)), sequence},
        copies_(holders_of_our_heads(axes)) {}

  void operator()(const nn::SlotName& name, const nn::Slot& slot) {
    const auto try_kind = [&]<class Kind>(void (Swap::*swap)(const nn::SlotName&, Kind&)) {
      if (Kind* place = slot.as<typename Kind::element_type>()) {
        (this->*swap)(name, *place);
      }
    };
    try_kind(&Swap::norm);
    try_kind(&Swap::junction);
    try_kind(&Swap::linear);
    try_kind(&Swap::tokens);
    try_kind(&Swap::positions);
    try_kind(&Swap::attention<nn::Attention>);
    try_kind(&Swap::attention<nn::BiasedAttention>);
    try_kind(&Swap::relative_positions);
    try_kind(&Swap::dropout);
    try_kind(&Swap::head);
  }

  ShardedParameters take() { return std::move(sharded_); }

 private:
  void norm(const nn::SlotName& name, std::shared_ptr<nn::Norm>& slot) {
    const bool is_of_heads = name.role == "query_norm" || name.role == "key_norm";
    // Each rank has other heads.
    hold_whole(
        name, *slot, is_of_heads ? &region_.group->communicator() : sharers_between_regions());
  }
  void junction(const nn::SlotName& name, std::shared_ptr<nn::Junction>& slot) {
    if (name.role == "head_input" && config_.head.classifies()) {
      slot = std::make_shared<WholeSequence>(region_);
      return;
    }
    const auto entrance = std::make_shared<Entrance>(region_);
    entered_ = entrance->weight_gradients;
    slot = entrance;
  }
  void linear(const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot);
  void tokens(const nn::SlotName& name, std::shared_ptr<nn::TokenEmbedding>& slot) {
    slot = std::make_shared<VocabularyParallelEmbedding>(
        *slot, region_, vocabulary(), config_.vocab_size);
    cut(name, *slot, {0, {vocabulary()}});
  }
  void positions(const nn::SlotName& name, std::shared_ptr<nn::PositionEmbedding>& slot) {
    if (region_.shards_sequence()) {
      slot = std::make_shared<SequenceShardedPositions>(*slot, region_);
    }
    hold_whole(name, *slot, sharers_between_regions());
  }
  template <class Kind>
  void attention(const nn::SlotName& /*name*/, std::shared_ptr<Kind>& slot) {
    slot->first_head = heads_.queries.begin;
    slot->total_heads = config_.heads;
  }
  void relative_positions(
      const nn::SlotName& name, std::shared_ptr<nn::RelativePositionTable>& slot) {
    cut(name, *slot, {1, {heads_.queries}});  // a column a head
  }
  void dropout(const nn::SlotName& name, std::shared_ptr<nn::Dropout>& slot) {
    if (name.role == "mlp_inner_dropout") {
      slot = std::make_shared<ShardedWidthDropout>(*slot, width(), config_.intermediate_size);
    }
  }
  void head(const nn::SlotName& name, std::shared_ptr<nn::Head>& slot) {
    if (config_.head.classifies()) {  // there may be fewer classes than ranks
      hold_whole(name, *slot, nullptr);
      return;
    }
    slot =
        std::make_shared<VocabularyParallelHead>(*slot, region_, vocabulary(), config_.vocab_size);
    cut(name, *slot, {0, {vocabulary()}});
  }

  int ranks() const { return static_cast<int>(region_.group->size()); }
  int rank() const { return static_cast<int>(region_.group->rank()); }
  comm::Communicator& holders_of_our_heads(Axes& axes) const {
    std::vector<int> holders(static_cast<size_t>(heads_.copies));
    std::iota(holders.begin(), holders.end(), axes.coordinate().tensor - heads_.copy);
    return axes.split(axes.along(mesh::Axis::kTensor), holders, "key_value_heads");
  }
  /// The ranks whose gradients of a parameter between the regions add up; null: they are the same.
  comm::Communicator* sharers_between_regions() const {
    return region_.shards_sequence() ? &region_.group->communicator() : nullptr;
  }
  Range vocabulary() const { return mesh::split_evenly(config_.vocab_size, ranks(), rank()); }
  Range width() const { return mesh::split_evenly(config_.intermediate_size, ranks(), rank()); }
  Range numbers_of(Range heads) const {
    return {heads.begin * config_.head_dim, heads.end * config_.head_dim};
  }
  /// Replaces the layer's parameters by those of the part.
  void cut(const nn::SlotName& name, nn::Layer& layer, const Cut& part);
  void hold_whole(const nn::SlotName& name, nn::Layer& layer, comm::Communicator* summed_over);
  /// Those of a product, cut along the layer's outputs or inputs.
  void cut_product(
      const nn::SlotName& name, nn::Product& product, Cut part, int nn::Parameter::* side);
  void replace(
      const nn::SlotName& name,
      const nn::Parameter& parameter,
      Cut cut,
      comm::Communicator* summed_over);

  const model::ModelConfig& config_;
  HeadSplit heads_;
  Region region_;
  comm::Communicator& copies_;
  std::shared_ptr<DeferredQueue> entered_;  // of the junction before the layers that are visited
  ShardedParameters sharded_;
};

void Swap::linear(const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot) {
  const Rule rule = rule_of(name.role);
  Cut part{0, {}};
  if (rule == Rule::kWidthOut || rule == Rule::kWidthIn) {
    part.ranges = {width()};
  } else if (rule == Rule::kPackedHeads) {
    const Range queries = numbers_of(heads_.queries);
    const int64_t all = config_.heads * config_.head_dim;
    for (int64_t i = 0; i < 3; ++i) {  // queries, keys, values
      part.ranges.push_back({queries.begin + i * all, queries.end + i * all});
    }
  } else {
    part.ranges = {numbers_of(rule == Rule::kKeyValues ? heads_.key_values : heads_.queries)};
  }
  if (rule == Rule::kHeadsIn || rule == Rule::kWidthIn) {
    const auto sharded = std::make_shared<ShardedToAllLinear>(*slot, region_);
    slot = sharded;
    cut_product(name, *slot->product(), std::move(part), &nn::Parameter::in);
    replace(name, {"bias", sharded->bias}, {}, sharers_between_regions());
    return;
  }
  if (takes_the_junction(name.role)) {
    defer_weight_gradients(*slot, entered_);
  }
  if (rule == Rule::kKeyValues) {
    part.copies = heads_.copies;
    part.copy = heads_.copy;
  }
  cut_product(name, *slot->product(), std::move(part), &nn::Parameter::out);
}

void Swap::cut_product(
    const nn::SlotName& name, nn::Product& product, Cut part, int nn::Parameter::* side) {
  product.visit_parameters([&](const nn::Parameter& parameter) {
    if (parameter.*side >= 0) {
      part.dim = parameter.*side;
      // Copies of key-value heads serve each rank's own queries.
      replace(name, parameter, part, part.copies > 1 ? &copies_ : nullptr);
    } else {  // a factor, which each rank uses for its own part of the layer
      replace(name, parameter, {}, &region_.group->communicator());
    }
  });
}

void Swap::cut(const nn::SlotName& name, nn::Layer& layer, const Cut& part) {
  layer.visit_parameters(
      [&](const nn::Parameter& parameter) { replace(name, parameter, part, nullptr); });
}

void Swap::hold_whole(const nn::SlotName& name, nn::Layer& layer, comm::Communicator* summed_over) {
  layer.visit_parameters(
      [&](const nn::Parameter& parameter) { replace(name, parameter, {}, summed_over); });
}

void Swap::replace(
    const nn::SlotName& name,
    const nn::Parameter& parameter,
    Cut cut,
    comm::Communicator* summed_over) {
  Tensor& value = parameter.value;
  if (!value.defined()) {
    return;
  }
  if (cut.is_whole()) {
    cut.copies = ranks();
    cut.copy = rank();
  }
  const std::vector<int64_t> shape = value.sizes().vec();
  value = at::empty(cut.local_shape(shape), value.options().requires_grad(false))
              .set_requires_grad(value.requires_grad());
  sharded_.emplace(
      name.parameter(parameter.name), ShardedParameter{shape, std::move(cut), summed_over});
}

}  // namespace

ShardedParameters apply_tensor_parallel(
    nn::LanguageModel& model, Axes& axes, SequenceSharding sequence) {
  comm::Communicator& group = axes.along(mesh::Axis::kTensor);
  if (group.size() == 1) {
    return {};  // the plain layers are those of a group of one
  }
  check_sizes(model.config(), group.size());
  Swap swap(model, axes, sequence);
  model.visit_slots(std::ref(swap));
  return swap.take();
}

}  // namespace lockstep::parallel
