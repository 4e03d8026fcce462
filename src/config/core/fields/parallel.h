// The fields of parallel.
#pragma once

#include <string_view>
#include <type_traits>

#include "config/core/config.h"
#include "config/core/fields/field.h"

namespace lockstep::config {

namespace choices {

inline constexpr std::string_view kOffloadDevices[] = {"none", "cpu", "nvme"};
inline constexpr std::string_view kContextAttentions[] = {"ring", "ulysses"};
inline constexpr std::string_view kRecomputes[] = {"none", "selective", "full"};
inline constexpr std::string_view kCudaGraphs[] = {"off", "auto"};

}  // namespace choices

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, OffloadSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"device",
       "none: on the device; cpu: in host memory; nvme: in files below path",
       choices::kOffloadDevices},
      section.device);
  visitor({"path", "Folder of the files, for device=nvme"}, section.path);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, OptimizerOffloadSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"device",
       "none: on the device; cpu: in host memory; nvme: in files below path",
       choices::kOffloadDevices},
      section.device);
  visitor({"path", "Folder of the files, for device=nvme"}, section.path);
  visitor(
      {"ratio", "Share of the state that is offloaded, 0 to 1; the rest stays on the device"},
      section.ratio);
}

template <class Section, class Visitor>
  requires std::is_same_v<std::remove_const_t<Section>, ParallelSection>
void visit_fields(Section& section, Visitor&& visitor) {
  visitor(
      {"data", "Data-parallel ranks; null: all ranks divided by the other sizes"}, section.data);
  visitor({"tensor", "Ranks that share each layer"}, section.tensor);
  visitor({"pipeline", "Stages of the pipeline"}, section.pipeline);
  visitor({"context", "Ranks that share each sequence"}, section.context);
  visitor(
      {"context_attention",
       "How ranks that share sequences attend: ring, keys and values pass round; ulysses, the "
       "ranks trade parts of the sequence for heads, which must divide",
       choices::kContextAttentions},
      section.context_attention);
  visitor(
      {"sequence_parallel", "Share the work between tensor-parallel regions by sequence too"},
      section.sequence_parallel);
  visitor(
      {"zero_stage",
       "What data-parallel ranks share: 0 nothing, 1 optimizer, 2 and gradients, 3 and parameters"},
      section.zero_stage);
  visitor(
      {"shard_ranks",
       "Neighbouring data-parallel ranks that share a state of which others hold replicas; -1: "
       "those of one machine; 0: all share one"},
      section.shard_ranks);
  visitor(
      {"zero_in_pipeline",
       "Allow zero_stage 2 and 3 in a pipeline, where every micro-batch pays for their "
       "communication"},
      section.zero_in_pipeline);
  visitor(
      {"cuda_graphs",
       "Steps as CUDA graphs, launched at once: auto, those of one shape where the plan allows; "
       "off",
       choices::kCudaGraphs},
      section.cuda_graphs);
  visitor(
      {"schedule",
       "Pipeline schedule: naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, or a file of "
       "actions"},
      section.schedule);
  visitor(
      {"virtual_stages", "Pieces of the model that each stage holds, for schedule=interleaved"},
      section.virtual_stages);
  visitor(
      {"split",
       "Stages by even cost (auto), by parameters, or by hand: layers of each stage as 3,4,4,1"},
      section.split);
  visitor(
      {"prefetch_units", "Units gathered ahead of use in zero_stage=3"}, section.prefetch_units);
  visitor(
      {"prefetch_elements",
       "Gather units ahead until they have so many elements, instead of prefetch_units; null: "
       "not"},
      section.prefetch_elements);
  visitor(
      {"persistence_threshold",
       "In zero_stage=3, parameters of fewer elements than this are not dropped after use"},
      section.persistence_threshold);
  visitor(
      {"recompute",
       "Activations recomputed in the backward pass: selective, the MLP's; full, all of a layer",
       choices::kRecomputes},
      section.recompute);
  visitor({"recompute_every", "Recompute every n-th layer; 1: all"}, section.recompute_every);
  visitor.section({"offload_optimizer", "Where optimizer state lives"}, section.offload_optimizer);
  visitor.section({"offload_param", "Where parameters live"}, section.offload_param);
}

}  // namespace lockstep::config
