// Replaces layers that depend on positions under sequence sharding.
#include "parallel/context/sequence_slots.h"

#include <memory>
#include <set>
#include <string>

#include <ATen/ops/constant_pad_nd.h>

#include "nn/experts.h"
#include "nn/table_adapter.h"
#include "parallel/ranks/part_dropout.h"

namespace lockstep::parallel {
namespace {

using at::Tensor;

/// Attention that strips the padding of a sequence, so that its results, including dropout, equal
/// those of the unsharded model.
struct UnpaddedAttention final : nn::Attention {
  explicit UnpaddedAttention(const nn::Attention& plain) : Attention(plain) {}

  Tensor forward(
      const Tensor& query,
      const Tensor& key,
      const Tensor& value,
      const nn::ForwardContext& context) const override {
    const int64_t length = query.size(2), real = context.inputs().whole_length;
    if (real == 0 || real == length) {
      return Attention::forward(query, key, value, context);
    }
    const auto cut = [&](const Tensor& x) { return x.narrow(2, 0, real); };
    const Tensor out = Attention::forward(cut(query), cut(key), cut(value), context);
    return at::constant_pad_nd(out, {0, 0, 0, length - real});  // [B, T, H D]
  }
};

class SwapSequenceSlots final {
 public:
  explicit SwapSequenceSlots(const SequencePart& part) : part_(part) {
    entered_.context_rank = part.context_rank;
    entered_.context_ranks = part.context_ranks;
  }
  void operator()(const nn::SlotName& name, const nn::Slot& slot) const {
    if (auto* dropout = slot.as<nn::Dropout>()) {
      swap(name, *dropout);
    } else if (auto* noise = slot.as<nn::EmbeddingNoise>()) {
      *noise = std::make_shared<PartNoise>(**noise, part_);
    } else if (auto* linear = slot.as<nn::Linear>()) {
      std::shared_ptr<nn::Dropout>* of_input = (*linear)->product()->input_dropout();
      // Dropout inside experts uses one random stream per token.
      if (of_input != nullptr && !name.role.starts_with("expert_")) {
        // Linear layers are between the gather and the scatter of tensor parallelism, except the
        // one before an encoder's head.
        take_part(*of_input, name.role == "head_dense" ? part_ : entered_);
      }
    } else if (auto* exchange = slot.as<nn::ExpertExchange>()) {
      (*exchange)->places = [part = entered_](int64_t length) { return part.places(length); };
    } else if (auto* tokens = slot.as<nn::TokenEmbedding>()) {
      take_part((*tokens)->adapter);
    } else if (auto* head = slot.as<nn::Head>()) {
      take_part((*head)->adapter);
    } else if (auto* attention = slot.as<nn::Attention>();
               attention != nullptr && part_.context_ranks == 1) {
      *attention = std::make_shared<UnpaddedAttention>(**attention);
    }
  }

 private:
  void swap(const nn::SlotName& name, std::shared_ptr<nn::Dropout>& slot) const {
    // These dropouts follow a norm or are inside the MLP, where activations are gathered over the
    // tensor ranks.
    static const std::set<std::string> entered{
        "mlp_inner_dropout", "encoder_dropout", "final_dropout"};
    take_part(slot, entered.count(name.role) > 0 ? entered_ : part_);
  }
  /// A table adapter's dropout has the sharding of the region in which the table is used.
  void take_part(const std::shared_ptr<nn::TableAdapter>& adapter) const {
    if (adapter != nullptr) {
      take_part(adapter->dropout, entered_);
    }
  }
  static void take_part(std::shared_ptr<nn::Dropout>& slot, const SequencePart& part) {
    if (part.is_whole()) {
      return;
    }
    // Keeps the width of a dropout that is already sharded by tensor parallelism.
    const auto* of_width = dynamic_cast<const PartDropout*>(slot.get());
    const auto dropout = of_width != nullptr ? std::make_shared<PartDropout>(*of_width)
                                             : std::make_shared<PartDropout>(*slot);
    dropout->part = part;
    slot = dropout;
  }
  SequencePart part_, entered_;  // outside and inside tensor-parallel layers
};

}  // namespace

void apply_sequence_part(nn::LanguageModel& model, const SequencePart& part) {
  if (part.is_whole()) {
    return;
  }
  model.visit_slots(SwapSequenceSlots(part));
}

}  // namespace lockstep::parallel
