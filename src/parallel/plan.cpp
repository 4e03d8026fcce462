// Checks that the strategies of a plan can be combined.
#include "parallel/plan.h"

#include "base/error.h"
#include "base/format.h"

namespace lockstep::parallel {

SequencePart sequence_part(const Plan& plan, const ParallelGroups& axes) {
  SequencePart part;
  part.context_rank = axes.coordinate().context;
  part.context_ranks = axes.mesh().context;
  if (plan.sequence_sharding == SequenceSharding::kShards) {
    part.tensor_rank = axes.coordinate().tensor;
    part.tensor_ranks = axes.mesh().tensor;
  }
  return part;
}

void check_plan(const Plan& plan, const mesh::Mesh& mesh) {
  const auto refuse = [](const std::string& what, const char* remedy) {
    throw Error(ErrorKind::kConfig, what, remedy);
  };
  if (mesh.pipeline > 1 && plan.zero_stage > 1 &&
      plan.zero_in_pipeline == ZeroInPipeline::kRefuse) {
    refuse(
        fmt::format(
            "parallel.zero_stage={} in a pipeline {}, while stage 1 communicates once per step",
            plan.zero_stage,
            plan.zero_stage == 2
                ? "reduces the gradients in every micro-batch"
                : "gathers the parameters twice and reduces the gradients in every micro-batch"),
        "use parallel.zero_stage=1, which shards the optimizer state, or "
        "parallel.zero_in_pipeline=true if memory matters more than speed");
  }
  const std::string& optim = plan.optimizer.optim;
  if (plan.expert_ranks > 1 && (optim == "adafactor" || optim == "adam_mini")) {
    refuse(
        fmt::format(
            "training.optim={} is not supported with parallel.expert: it sums over all ranks that "
            "shard a state, but experts have a group of their own",
            optim),
        "use adamw_torch_fused, or parallel.expert=1");
  }
  if (optim == "muon" && plan.offload_optimizer.device == OffloadDevice::kNvme) {
    refuse(
        "training.optim=muon is not supported with parallel.offload_optimizer.device=nvme: it "
        "reads "
        "the momentum of all matrices before it updates the first",
        "use parallel.offload_optimizer.device=cpu");
  }
  const bool uses_files =
      plan.offload_optimizer.device == OffloadDevice::kNvme || !plan.parameter_folder.empty();
  if (optim == "schedule_free_adamw" && uses_files) {
    refuse(
        "training.optim=schedule_free_adamw is not supported with offload to files: evaluations "
        "temporarily replace all weights by their averages",
        "use cpu for parallel.offload_optimizer.device and parallel.offload_param.device");
  }
  if (mesh.pipeline > 1 && plan.router_losses.balance == nn::Balance::kBatch) {
    refuse(
        "training.router_aux_loss=micro_batch is not supported in a pipeline: it multiplies means "
        "over all layers of the model, but the layers are on different stages",
        "use training.router_aux_loss=sequence, which does not depend on the plan");
  }
  if (mesh.tensor > 1 && optim.ends_with("8bit") &&
      (plan.offload_optimizer.device == OffloadDevice::kNvme || plan.expert_ranks > 1)) {
    refuse(
        fmt::format(
            "training.optim={} is not supported with parallel.tensor and {}: tensor ranks share "
            "blocks of 256 numbers, whose scale is the maximum over the ranks, which {}",
            optim,
            plan.expert_ranks > 1 ? "parallel.expert" : "parallel.offload_optimizer.device=nvme",
            plan.expert_ranks > 1
                ? "would need a separate reduction for experts"
                : "requires the moments of all parameters before the first update"),
        "use adamw_torch_fused, or only one of the two");
  }
}

}  // namespace lockstep::parallel
