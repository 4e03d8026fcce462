// Applies context parallelism to the attention of a model.
#include "parallel/context/context_parallel.h"

#include <memory>

#include "base/error.h"
#include "base/format.h"
#include "parallel/context/ring_attention.h"
#include "parallel/ranks/head_split.h"

namespace lockstep::parallel {
namespace {

class SwapAttention final {
 public:
  SwapAttention(
      const model::ModelConfig& config,
      comm::Communicator& group,
      const SequencePart& part,
      ContextAttention attention)
      : config_(config),
        group_(group),
        part_(part),
        attention_(attention) {}
  void operator()(const nn::SlotName& name, const nn::Slot& slot) const {
    if (auto* attention = slot.as<nn::Attention>()) {
      swap(*attention);
    } else if (auto* biased = slot.as<nn::BiasedAttention>()) {
      swap(name, *biased);
    } else if (auto* linear = slot.as<nn::Linear>()) {
      (*linear)->product()->set_largest_over(
          nn::Shared::kRows, [group = &group_](const at::Tensor& part) {
            at::Tensor all = part.clone();
            group->all_reduce(all, comm::Reduce::kMax).wait();
            return all;
          });
    }
  }

 private:
  void swap(std::shared_ptr<nn::Attention>& slot) const {
    if (attention_ == ContextAttention::kRing) {
      slot = std::make_shared<RingAttention>(*slot, part_, group_);
    } else {
      slot = std::make_shared<UlyssesAttention>(*slot, part_, group_);
    }
  }
  void swap(const nn::SlotName& name, std::shared_ptr<nn::BiasedAttention>& slot) const {
    const bool encodes = name.layer < config_.encoder_layers;
    const bool reads_source = encodes || name.role == "cross_attention";
    slot = std::make_shared<BiasedRingAttention>(
        *slot,
        part_,
        group_,
        encodes ? Sequence::kSource : Sequence::kTarget,
        reads_source ? Sequence::kSource : Sequence::kTarget);
  }

  const model::ModelConfig& config_;
  comm::Communicator& group_;
  SequencePart part_;
  ContextAttention attention_;
};

/// Checks the heads of every tensor rank, so that all ranks report the same error.
void check_heads(const model::ModelConfig& config, const mesh::Mesh& mesh) {
  for (int rank = 0; rank < mesh.tensor; ++rank) {
    const HeadSplit heads = split_heads(config, rank, mesh.tensor);
    const int64_t queries = heads.queries.size();
    if (queries % mesh.context != 0) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format(
              "parallel.context_attention=ulysses distributes the {} query heads of a tensor rank "
              "to {} context ranks, but they are not divisible",
              queries,
              mesh.context),
          "use parallel.context_attention=ring, or a parallel.context that divides the number of "
          "heads");
    }
  }
}

}  // namespace

void apply_context_parallel(
    nn::LanguageModel& model,
    ParallelGroups& axes,
    const SequencePart& part,
    ContextAttention attention) {
  comm::Communicator& group = axes.along(mesh::Axis::kContext);
  if (group.size() == 1) {
    return;  // the original attention is correct in a group of one rank
  }
  if (attention == ContextAttention::kUlysses && model.config().is_encoder_decoder()) {
    throw Error(
        ErrorKind::kConfig,
        "parallel.context_attention=ulysses is not supported with an encoder-decoder: its relative "
        "position bias needs all heads",
        "use parallel.context_attention=ring");
  }
  if (attention == ContextAttention::kUlysses) {
    check_heads(model.config(), axes.mesh());
  }
  model.visit_slots(SwapAttention(model.config(), group, part, attention));
}

}  // namespace lockstep::parallel
