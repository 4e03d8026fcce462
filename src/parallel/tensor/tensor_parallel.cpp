// Replaces layers with tensor-parallel layers.
#include "parallel/tensor/tensor_parallel.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <type_traits>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "model/description.h"
#include "nn/experts.h"
#include "nn/table_adapter.h"
#include "parallel/ranks/head_split.h"
#include "parallel/tensor/layers.h"

namespace lockstep::parallel {
namespace {

using mesh::Cut;
using mesh::Range;
using model::Dim;

/// Returns true if one product computes queries, keys and values. A rank's shard must then have
/// whole key-value heads: replicated key-value heads are not supported, because their gradients
/// would have to be summed over the replicas while those of the queries would not.
bool packs_heads(const model::ModelConfig& config) {
  for (const model::LayerSpec& layer : model::block_layers(config, 0)) {
    if (layer.out == Dim::kPackedHeads) {
      return true;
    }
  }
  return false;
}

void check_sizes(const model::ModelConfig& config, int ranks) {
  std::string problems;
  int64_t most = config.heads;
  const auto check = [&](int64_t size, const char* what) {
    most = std::min(most, size);
    if (size < ranks) {
      problems += fmt::format(
          "{}parallel.tensor is {}, but the model has {} {}",
          problems.empty() ? "" : "\n",
          ranks,
          size,
          what);
    }
  };
  check(config.heads, "query heads");
  if (packs_heads(config)) {
    check(config.kv_heads, "key-value heads, which are fused with the queries");
  }
  if (std::ssize(config.experts.dense_layers) > 0 || config.experts.count == 0) {
    check(config.intermediate_size, "columns in its MLP");
  }
  if (config.experts.count > 0) {
    check(config.experts.width, "columns in an expert");
    if (config.experts.shared_width > 0) {
      check(config.experts.shared_width, "columns in its shared expert");
    }
  }
  check(config.vocab_size, "tokens in its vocabulary");
  if (!problems.empty()) {
    throw Error(
        ErrorKind::kConfig, problems, fmt::format("set parallel.tensor to at most {}", most));
  }
}

class TensorParallelizer final {
 public:
  TensorParallelizer(nn::LanguageModel& model, ParallelGroups& axes, SequenceSharding sequence)
      : config_(model.config()),
        layers_(model.layers),
        heads_(split_heads(config_, axes.coordinate().tensor, axes.mesh().tensor)),
        region_{c10::make_intrusive<TensorGroup>(axes.along(mesh::Axis::kTensor)), sequence},
        copies_(holders_of_our_heads(axes)) {}

  void operator()(const nn::SlotName& name, const nn::Slot& slot) {
    const auto try_kind =
        [&]<class Kind>(void (TensorParallelizer::*swap)(const nn::SlotName&, Kind&)) {
          if (Kind* place = slot.as<typename Kind::element_type>()) {
            (this->*swap)(name, *place);
          }
        };
    try_kind(&TensorParallelizer::norm);
    try_kind(&TensorParallelizer::boundary);
    try_kind(&TensorParallelizer::linear);
    try_kind(&TensorParallelizer::router);
    try_kind(&TensorParallelizer::tokens);
    try_kind(&TensorParallelizer::sequence_tokens);
    try_kind(&TensorParallelizer::positions);
    try_kind(&TensorParallelizer::attention<nn::Attention>);
    try_kind(&TensorParallelizer::attention<nn::BiasedAttention>);
    try_kind(&TensorParallelizer::relative_positions);
    try_kind(&TensorParallelizer::dropout);
    try_kind(&TensorParallelizer::head);
    try_kind(&TensorParallelizer::head_bias);
  }

  ShardedParameters take() { return std::move(sharded_); }

 private:
  void norm(const nn::SlotName& name, std::shared_ptr<nn::Norm>& slot) {
    const model::ParameterSpec& weight = layer(name).weight();
    if (const auto part = cut_of(weight.dims.front(), 0)) {  // norms over the heads of all ranks
                                                             // are cut
      slot = std::make_shared<NormOverRanks>(*slot, region_, weight.shape.front(), part->copies);
      cut(name, *slot, *part);
      return;
    }
    // Norms of single heads: the ranks have different heads, so the gradients are summed.
    const bool is_of_heads = weight.dims.front() == Dim::kHeadDim;
    hold_whole(
        name, *slot, is_of_heads ? &region_.group->communicator() : sharers_between_regions());
  }
  void boundary(const nn::SlotName& name, std::shared_ptr<nn::RegionBoundary>& slot) {
    const bool is_whole = config_.head.classifies() || config_.head.gives_states();
    if (name.role == "head_input" && is_whole) {
      slot = std::make_shared<WholeSequence>(region_);
      return;
    }
    if (name.role == "mlp_output") {
      slot = std::make_shared<Exit>(region_);
      return;
    }
    const auto entrance = std::make_shared<Entrance>(region_);
    entered_ = entrance->weight_gradients;
    slot = entrance;
  }
  void linear(const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot);
  void expert_linear(const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot);
  static void cut_input_dropout(
      const model::LayerSpec& spec, nn::LinearKernel& product, Range part);
  void share_largest(nn::LinearKernel& product, nn::Shared what) const {
    product.set_largest_over(
        what, [group = region_.group](const Tensor& part) { return group->largest(part); });
  }
  void router(const nn::SlotName& name, std::shared_ptr<nn::Router>& slot) {
    // All ranks route identically, and each has a partial gradient of the routing weights.
    hold_whole(name, *slot, &region_.group->communicator());
  }
  void tokens(const nn::SlotName& name, std::shared_ptr<nn::TokenEmbedding>& slot) {
    slot = std::make_shared<VocabularyParallelEmbedding>(
        *slot, region_, vocabulary(), config_.vocab_size);
    cut_table(name, *slot, &nn::Parameter::in);
  }
  void sequence_tokens(const nn::SlotName& name, std::shared_ptr<nn::SequenceTokens>& slot) {
    cut_table(name, *slot, &nn::Parameter::in);
  }
  void positions(const nn::SlotName& name, std::shared_ptr<nn::PositionEmbedding>& slot) {
    if (region_.shards_sequence()) {
      slot = std::make_shared<SequenceShardedPositions>(*slot, region_);
    }
    hold_whole(name, *slot, sharers_between_regions());
  }
  template <class Kind>
  void attention(const nn::SlotName& name, std::shared_ptr<Kind>& slot) {
    slot->first_head = heads_.queries.begin;
    slot->total_heads = config_.heads;
    if constexpr (std::is_base_of_v<nn::Layer, Kind>) {
      cut(name, *slot, *cut_of(Dim::kHeads, 0));
    }
  }
  void relative_positions(
      const nn::SlotName& name, std::shared_ptr<nn::RelativePositionTable>& slot) {
    cut(name, *slot, *cut_of(Dim::kHeads, 1));
  }
  void dropout(const nn::SlotName& name, std::shared_ptr<nn::Dropout>& slot) {
    if (name.role == "mlp_inner_dropout") {
      slot = std::make_shared<ShardedWidthDropout>(*slot, width(), config_.intermediate_size);
    }
  }
  void head(const nn::SlotName& name, std::shared_ptr<nn::Head>& slot) {
    if (config_.head.gives_states()) {
      return;
    }
    if (config_.head.classifies()) {  // not cut, because there may be fewer classes than ranks
      hold_whole(name, *slot, nullptr);
      return;
    }
    slot =
        std::make_shared<VocabularyParallelHead>(*slot, region_, vocabulary(), config_.vocab_size);
    cut_table(name, *slot, &nn::Parameter::out);
  }
  /// Shards an embedding or a head, and its adapter.
  template <class Table>
  void cut_table(const nn::SlotName& name, Table& table, int nn::Parameter::* side) {
    if (table.adapter != nullptr) {
      table.adapter->first = vocabulary().begin;
      table.adapter->sum_over_rows = [group = region_.group](const Tensor& part) {
        return group->sum(part);
      };
    }
    cut_product(name, table, *cut_of(Dim::kVocabulary, 0), side);
  }

  void head_bias(const nn::SlotName& name, std::shared_ptr<nn::HeadBias>& slot) {
    if (config_.head.classifies()) {
      hold_whole(name, *slot, nullptr);
    } else {
      cut(name, *slot, *cut_of(Dim::kVocabulary, 0));
    }
  }

  int ranks() const { return static_cast<int>(region_.group->size()); }
  int rank() const { return static_cast<int>(region_.group->rank()); }
  comm::Communicator& holders_of_our_heads(ParallelGroups& axes) const {
    std::vector<int> holders(static_cast<size_t>(heads_.copies));
    std::iota(holders.begin(), holders.end(), axes.coordinate().tensor - heads_.copy);
    return axes.split(axes.along(mesh::Axis::kTensor), holders, "key_value_heads");
  }
  /// Returns the ranks over which the gradients of a parameter between regions must be summed;
  /// null: the gradients are equal.
  comm::Communicator* sharers_between_regions() const {
    return region_.shards_sequence() ? &region_.group->communicator() : nullptr;
  }
  Range vocabulary() const { return mesh::split_evenly(config_.vocab_size, ranks(), rank()); }
  Range width() const { return mesh::split_evenly(config_.intermediate_size, ranks(), rank()); }
  Range numbers_of(Range heads) const {
    return {heads.begin * config_.head_dim, heads.end * config_.head_dim};
  }
  const model::LayerSpec& layer(const nn::SlotName& name) const { return layers_.at(name.prefix); }
  /// Returns this rank's cut of a parameter whose dimension `at` is `dim`; nullopt if the parameter
  /// is replicated.
  std::optional<Cut> cut_of(Dim dim, int at) const;
  /// Replaces the parameters of a layer with this rank's shards.
  void cut(const nn::SlotName& name, nn::Layer& layer, const Cut& part);
  void hold_whole(const nn::SlotName& name, nn::Layer& layer, comm::Communicator* summed_over);
  /// Variant for a kernel or a table that is cut along the layer's outputs or inputs.
  template <class LinearKernel>
  void cut_product(
      const nn::SlotName& name, LinearKernel& product, Cut part, int nn::Parameter::* side);
  void replace(
      const nn::SlotName& name,
      const nn::Parameter& parameter,
      Cut cut,
      comm::Communicator* summed_over);

  const model::ModelConfig& config_;
  const std::map<std::string, model::LayerSpec>& layers_;
  HeadSplit heads_;
  Region region_;
  comm::Communicator& copies_;
  std::shared_ptr<DeferredQueue> entered_;  // queue of the region entry that was visited last
  ShardedParameters sharded_;
};

std::optional<Cut> TensorParallelizer::cut_of(Dim dim, int at) const {
  Cut part{at, {}};
  switch (dim) {
    case Dim::kQueries:
      part.ranges = {numbers_of(heads_.queries)};
      break;
    case Dim::kKeyValues:
      part.ranges = {numbers_of(heads_.key_values)};
      part.copies = heads_.copies;
      part.copy = heads_.copy;
      break;
    case Dim::kPackedHeads: {
      const Range keys = numbers_of(heads_.key_values);
      const int64_t first_key = config_.heads * config_.head_dim;
      const int64_t first_value = first_key + config_.kv_heads * config_.head_dim;
      part.ranges.push_back(numbers_of(heads_.queries));
      for (const int64_t first : {first_key, first_value}) {
        part.ranges.push_back({keys.begin + first, keys.end + first});
      }
      break;
    }
    case Dim::kHeadTriples: {
      const Range queries = numbers_of(heads_.queries);
      part.ranges = {{3 * queries.begin, 3 * queries.end}};
      break;
    }
    case Dim::kGatedWidth: {
      const Range gate = width();
      const int64_t all = config_.intermediate_size;
      part.ranges = {gate, {gate.begin + all, gate.end + all}};
      break;
    }
    case Dim::kHeads:
      part.ranges = {heads_.queries};
      break;
    case Dim::kWidth:
      part.ranges = {width()};
      break;
    case Dim::kGatePairs: {
      const Range pairs = mesh::split_evenly(config_.experts.width, ranks(), rank());
      part.ranges = {{2 * pairs.begin, 2 * pairs.end}};
      break;
    }
    case Dim::kSharedWidth:
      part.ranges = {mesh::split_evenly(config_.experts.shared_width, ranks(), rank())};
      break;
    case Dim::kExpertWidth:
      part.ranges = {mesh::split_evenly(config_.experts.width, ranks(), rank())};
      break;
    case Dim::kVocabulary:
      part.ranges = {vocabulary()};
      break;
    case Dim::kExperts:
    case Dim::kHidden:
    case Dim::kHeadDim:
    case Dim::kClasses:
    case Dim::kPositions:
    case Dim::kTokenTypes:
    case Dim::kDistances:
    case Dim::kRank:
    case Dim::kNewRows:
      return std::nullopt;
  }
  return part;
}

/// Megatron's split (Shoeybi et al., 2019, section 3): a linear layer that is cut along its outputs
/// feeds one that is cut along its inputs.
void TensorParallelizer::linear(const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot) {
  const model::LayerSpec& spec = layer(name);
  if (spec.expert >= 0 || spec.is_shared) {
    expert_linear(name, slot);
    return;
  }
  if (std::optional<Cut> inputs = cut_of(spec.in, 0)) {
    const auto sharded = std::make_shared<ShardedToAllLinear>(*slot, region_);
    slot = sharded;
    slot->product()->set_sum_over_inputs(
        [group = region_.group](const Tensor& part) { return group->sum(part); });
    share_largest(*slot->product(), nn::Shared::kInputs);
    cut_input_dropout(spec, *slot->product(), inputs->ranges.front());
    cut_product(name, *slot->product(), std::move(*inputs), &nn::Parameter::in);
    replace(name, {"bias", sharded->bias}, {}, sharers_between_regions());
    return;
  }
  std::optional<Cut> outputs = cut_of(spec.out, 0);
  if (!outputs) {  // between regions; every rank computes it identically
    hold_whole(name, *slot, sharers_between_regions());
    return;
  }
  // The layer's only input comes from the preceding boundary, so its weight gradient is computed
  // while the input gradient is summed.
  if (!spec.reads_source) {
    defer_weight_gradients(*slot, entered_);
  }
  share_largest(*slot->product(), nn::Shared::kOutputs);
  if (outputs->copies > 1) {
    slot->product()->set_sum_over_copies(
        outputs->copies, [group = c10::make_intrusive<TensorGroup>(copies_)](const Tensor& part) {
          return group->sum(part);
        });
  }
  cut_product(name, *slot->product(), std::move(*outputs), &nn::Parameter::out);
}

/// Variant for linear layers of an expert. The ranks' partial results are added after the sum over
/// experts.
void TensorParallelizer::expert_linear(
    const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot) {
  const model::LayerSpec& spec = layer(name);
  nn::LinearKernel& product = *slot->product();
  if (std::optional<Cut> inputs = cut_of(spec.in, 0)) {
    product.set_sum_over_inputs(
        [group = region_.group](const Tensor& part) { return group->sum(part); });
    share_largest(product, nn::Shared::kInputs);
    const auto part = std::make_shared<PartOfSumLinear>(*slot, ranks());
    slot = part;
    cut_input_dropout(spec, product, inputs->ranges.front());
    cut_product(name, product, std::move(*inputs), &nn::Parameter::in);
    replace(name, {"bias", part->bias}, {}, &region_.group->communicator());
    return;
  }
  std::optional<Cut> outputs = cut_of(spec.out, 0);
  if (!outputs) {  // gate of a shared expert: each rank has a partial gradient
    hold_whole(name, *slot, &region_.group->communicator());
    return;
  }
  share_largest(product, nn::Shared::kOutputs);
  cut_product(name, product, std::move(*outputs), &nn::Parameter::out);
}

void TensorParallelizer::cut_input_dropout(
    const model::LayerSpec& spec, nn::LinearKernel& product, Range part) {
  if (std::shared_ptr<nn::Dropout>* of_input = product.input_dropout()) {
    const int64_t all = spec.weight().shape[spec.in_first ? 0 : 1];
    *of_input = std::make_shared<ShardedWidthDropout>(**of_input, part, all);
  }
}

template <class LinearKernel>
void TensorParallelizer::cut_product(
    const nn::SlotName& name, LinearKernel& product, Cut part, int nn::Parameter::* side) {
  product.visit_parameters([&](const nn::Parameter& parameter) {
    if (parameter.*side >= 0) {
      part.dim = parameter.*side;
      // Replicated key-value heads are used by different queries on each rank, so their gradients
      // are summed.
      replace(name, parameter, part, part.copies > 1 ? &copies_ : nullptr);
    } else {  // an adapter factor that each rank applies to its own shard of the layer
      replace(name, parameter, {}, &region_.group->communicator());
    }
  });
}

void TensorParallelizer::cut(const nn::SlotName& name, nn::Layer& layer, const Cut& part) {
  layer.visit_parameters([&](const nn::Parameter& parameter) {
    replace(name, parameter, part, part.copies > 1 ? &copies_ : nullptr);
  });
}

void TensorParallelizer::hold_whole(
    const nn::SlotName& name, nn::Layer& layer, comm::Communicator* summed_over) {
  layer.visit_parameters(
      [&](const nn::Parameter& parameter) { replace(name, parameter, {}, summed_over); });
}

void TensorParallelizer::replace(
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
  std::vector<int64_t> shape = value.sizes().vec(), part;
  if (parameter.packed != nullptr) {
    shape = {parameter.packed->out, parameter.packed->in};
    narrow_packed(*parameter.packed, cut);
    part = {parameter.packed->bytes()};
  } else {
    part = cut.local_shape(shape);
  }
  value = at::empty(part, value.options().requires_grad(false))
              .set_requires_grad(value.requires_grad());
  sharded_.emplace(
      name.parameter(parameter.name), ShardedParameter{shape, std::move(cut), summed_over});
}

}  // namespace

ShardedParameters apply_tensor_parallel(
    nn::LanguageModel& model, ParallelGroups& axes, SequenceSharding sequence) {
  comm::Communicator& group = axes.along(mesh::Axis::kTensor);
  if (group.size() == 1) {
    return {};  // the original layers are correct in a group of one rank
  }
  check_sizes(model.config(), group.size());
  TensorParallelizer swap(model, axes, sequence);
  model.visit_slots(std::ref(swap));
  return swap.take();
}

}  // namespace lockstep::parallel
