#include "parallel/tensor/tensor_parallel.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/format.h"
#include "parallel/tensor/head_split.h"
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

/// Whether the layer's input is what the norm before it lets in, and nothing else: its weight's
/// gradient is then made while the input's is summed.
bool takes_the_norm(const std::string& role) {
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

class Swap final : public nn::SlotVisitor {
 public:
  Swap(nn::LanguageModel& model, Axes& axes, SequenceSharding sequence)
      : config_(model.config()),
        heads_(split_heads(config_, axes.coordinate().tensor, axes.mesh().tensor)),
        region_{c10::make_intrusive<TensorGroup>(axes.along(mesh::Axis::kTensor)), sequence},
        copies_(holders_of_our_heads(axes)) {}

  void norm(const nn::SlotName& name, std::shared_ptr<nn::Norm>& slot) override {
    const auto norm = std::make_shared<EnteringNorm>(*slot, region_);
    entered_ = norm->weight_gradients;
    slot = norm;
    cut(name, *slot, {}, {});
  }
  void linear(const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot) override;
  void tokens(const nn::SlotName& name, std::shared_ptr<nn::TokenEmbedding>& slot) override {
    slot = std::make_shared<VocabularyParallelEmbedding>(
        *slot, region_, vocabulary(), config_.vocab_size);
    cut(name, *slot, along(0, {vocabulary()}), {});
  }
  void positions(const nn::SlotName& name, std::shared_ptr<nn::PositionEmbedding>& slot) override {
    if (region_.shards_sequence()) {
      slot = std::make_shared<SequenceShardedPositions>(*slot, region_);
    }
    cut(name, *slot, {}, {});
  }
  void attention(const nn::SlotName& /*name*/, std::shared_ptr<nn::Attention>& slot) override {
    slot->first_head = heads_.queries.begin;
    slot->total_heads = config_.heads;
  }
  void biased_attention(
      const nn::SlotName& /*name*/, std::shared_ptr<nn::BiasedAttention>& slot) override {
    slot->first_head = heads_.queries.begin;
    slot->total_heads = config_.heads;
  }
  void relative_positions(
      const nn::SlotName& name, std::shared_ptr<nn::RelativePositionTable>& slot) override {
    cut(name, *slot, along(1, {heads_.queries}), {});  // a column a head
  }
  void dropout(const nn::SlotName& name, std::shared_ptr<nn::Dropout>& slot) override {
    if (name.role == "mlp_inner_dropout") {
      slot = std::make_shared<ShardedWidthDropout>(*slot, width(), config_.intermediate_size);
    }
  }
  void loss_head(const nn::SlotName& name, std::shared_ptr<nn::LossHead>& slot) override {
    slot =
        std::make_shared<VocabularyParallelHead>(*slot, region_, vocabulary(), config_.vocab_size);
    cut(name, *slot, along(0, {vocabulary()}), {});
  }

  ShardedParameters take() { return std::move(sharded_); }

 private:
  int ranks() const { return static_cast<int>(region_.group->size()); }
  int rank() const { return static_cast<int>(region_.group->rank()); }
  Group holders_of_our_heads(Axes& axes) const {
    std::vector<int> holders(static_cast<size_t>(heads_.copies));
    std::iota(holders.begin(), holders.end(), axes.coordinate().tensor - heads_.copy);
    return c10::make_intrusive<TensorGroup>(
        axes.split(axes.along(mesh::Axis::kTensor), holders, "key_value_heads"));
  }
  Range vocabulary() const { return mesh::split_evenly(config_.vocab_size, ranks(), rank()); }
  Range width() const { return mesh::split_evenly(config_.intermediate_size, ranks(), rank()); }
  Range numbers_of(Range heads) const {
    return {heads.begin * config_.head_dim, heads.end * config_.head_dim};
  }
  static Cut along(int dim, std::vector<Range> ranges) { return {dim, std::move(ranges)}; }

  /// Replaces the layer's parameters by those of the part.
  void cut(const nn::SlotName& name, nn::Layer& layer, Cut of_weight, Cut of_bias);

  const model::ModelConfig& config_;
  HeadSplit heads_;
  Region region_;
  Group copies_;
  std::shared_ptr<DeferredQueue> entered_;  // of the norm before the layers that are visited
  ShardedParameters sharded_;
};

void Swap::linear(const nn::SlotName& name, std::shared_ptr<nn::Linear>& slot) {
  const Rule rule = rule_of(name.role);
  const bool is_out_in = slot->layout == nn::WeightLayout::kOutIn;
  const int out = is_out_in ? 0 : 1, in = is_out_in ? 1 : 0;
  std::vector<Range> ranges;
  if (rule == Rule::kWidthOut || rule == Rule::kWidthIn) {
    ranges = {width()};
  } else if (rule == Rule::kPackedHeads) {
    const Range part = numbers_of(heads_.queries);
    const int64_t all = config_.heads * config_.head_dim;
    for (int64_t i = 0; i < 3; ++i) {  // queries, keys, values
      ranges.push_back({part.begin + i * all, part.end + i * all});
    }
  } else {
    ranges = {numbers_of(rule == Rule::kKeyValues ? heads_.key_values : heads_.queries)};
  }
  if (rule == Rule::kHeadsIn || rule == Rule::kWidthIn) {
    slot = std::make_shared<ShardedToAllLinear>(*slot, region_);
    cut(name, *slot, along(in, ranges), {});
    return;
  }
  if (takes_the_norm(name.role)) {
    defer_weight_gradients(*slot, entered_);
  }
  Cut of_weight = along(out, ranges), of_bias = along(0, ranges);
  if (rule == Rule::kKeyValues && heads_.copies > 1) {
    slot = std::make_shared<CopiedHeadsLinear>(*slot, copies_);
    of_weight.copies = of_bias.copies = heads_.copies;
    of_weight.copy = of_bias.copy = heads_.copy;
  }
  cut(name, *slot, std::move(of_weight), std::move(of_bias));
}

void Swap::cut(const nn::SlotName& name, nn::Layer& layer, Cut of_weight, Cut of_bias) {
  const auto replace = [&](Tensor& parameter, Cut cut, const char* suffix) {
    if (!parameter.defined()) {
      return;
    }
    if (cut.is_whole()) {
      cut.copies = ranks();
      cut.copy = rank();
    }
    const std::vector<int64_t> shape = parameter.sizes().vec();
    parameter = at::empty(cut.local_shape(shape), parameter.options().requires_grad(false))
                    .set_requires_grad(parameter.requires_grad());
    sharded_.emplace(name.prefix + suffix, ShardedParameter{shape, std::move(cut)});
  };
  replace(layer.weight, std::move(of_weight), ".weight");
  replace(layer.bias, std::move(of_bias), ".bias");
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
  model.visit_slots(swap);
  return swap.take();
}

}  // namespace lockstep::parallel
