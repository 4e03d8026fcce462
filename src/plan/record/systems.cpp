// What is known of the systems whose runs are published.
#include <string>
#include <string_view>

#include "plan/record/runs.h"

namespace lockstep::plan {

namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Bytes that are moved to add a gradient of 16 bits to a sum of them: it is read, and the sum read
// and written.
constexpr double kSumIn16 = 2 + 2 + 2;

// Megatron-LM of 2020 to 2022 and what was built on it: scores in memory, dropout, gradients
// reduced at the end.
Software megatron_2021() {
  Software software;
  software.fused_attention = false;
  software.overlap_data = false;
  software.blocking_messages = true;
  software.waits_for_messages = true;
  software.dropout = true;
  software.gradient_bytes = 4;
  software.reduce_bytes = 2;
  software.logit_bytes = 10;
  software.sum_bytes_moved = kSumIn16;  // as torch adds to a gradient that is there
  return software;
}

Software
fully_sharded() {  // PyTorch's FSDP with mixed precision: float32 shards, 16-bit gathered units
  Software software;
  software.weight_bytes = 4;
  software.gradient_bytes = 4;
  software.optimizer_bytes = 8;
  software.reduce_bytes = 4;
  software.update_bytes = 28;
  software.logit_bytes = 10;
  software.reduce_each_micro_batch = true;
  software.recompute_stops_early = true;
  return software;
}

// Rates of attention kernels over those of FlashAttention 2, from their authors' plots: cuDNN's for
// Hopper and later (Ampere's is no faster), and Triton's of 2023.
constexpr double kCudnnAttention = 1.6;
constexpr double kTritonAttention = 0.65;

}  // namespace

Software software_of(const std::string& system, const Job& job) {
  Software software;
  if (has(system, "Megatron-Core") || has(system, "Megatron-Bridge")) {
    software.overlap_tensor = 1;
    software.gradient_bytes = 4;
    software.reduce_bytes = has(system, "Core") ? 4 : 2;  // Bridge's recipes reduce in 16 bits
    software.attention_generation = kCudnnAttention;
  } else if (has(system, "BLOOM") || has(system, "MT-NLG")) {
    software = megatron_2021();
    software.gradient_bytes = 2;
    // Random states go through the host; BLOOM's runs hung unless the host waited for every launch.
    software.waits_for_host = true;
    software.context_bytes = 4.5e9;  // a dozen communicators besides the driver
    software.bucket_bytes = 3e9;     // two of 500 million numbers, and the float32 copy of one
  } else if (has(system, "DeepSpeed ZeRO-3")) {
    software = megatron_2021();
    software.overlap_data = true;
    software.gradient_bytes = 2;
    software.reduce_each_micro_batch = true;
    software.flat_gather = true;
    software.unit_parameters = 1e9;  // stage3_max_live_parameters
  } else if (has(system, "zero-bubble")) {
    software = megatron_2021();
    software.sum_bytes_moved = 0;  // added by the product itself
    software.lone_optimizer_steps = true;
    software.fused_softmax = false;  // by how much longer F takes than W in the published profile
    software.fragmentation = 0;      // its peaks are what was allocated, not what was reserved
  } else if (has(system, "Megatron") || has(system, "OneFlow")) {
    software = megatron_2021();
    software.overlap_data = has(system, "OneFlow") || has(system, "2020");  // torch's DDP
    software.early_libraries = has(system, "2020");
    if (has(system, "OneFlow")) {  // actors send and receive beside the compute, without the host
      software.blocking_messages = false;
      software.waits_for_messages = false;
      software.fused_score_dropout = true;
    }
    if (has(system, "selective")) {
      software.sum_bytes_moved = 0;  // since 2022 the product of a weight's gradient adds it
    }
  } else if (has(system, "llm-foundry")) {
    software = fully_sharded();
    software.copy_bytes = 6;  // 16-bit gradients are widened before they are reduced
    software.fused_elementwise = false;
    software.attention_generation = kTritonAttention;
    software.logit_bytes = 6;
    software.early_libraries = true;  // 2023; only on devices that were new then
  } else if (has(system, "llm.c")) {
    software.attention_generation = kCudnnAttention;
  } else if (has(system, "torchtitan")) {
    software = fully_sharded();
    software.fused_elementwise = has(system, "compile");
    software.overlap_tensor = has(system, "async") ? 0.5 : 0;  // the gathers, not the reductions
    software.copy_bytes = 14;   // two gathers copied out, a gradient copied in
    software.merge_bytes = 32;  // in float32, by separate kernels
  } else if (has(system, "LLM.Q")) {
    software.offloads_activations = true;
    software.attention_generation = kCudnnAttention;
    software.optimizer_bytes = 4;  // moments in 16 bits; the weights are their own master copy
    software.update_bytes = 16;
    software.logit_bytes = 0.5;  // the head is computed in pieces
  } else if (has(system, "picotron") || has(system, "FSDP")) {
    software = fully_sharded();
  }
  if (job.precision == Precision::kFloat32) {
    software.weight_bytes = 4;
    software.gradient_bytes = 4;
    software.optimizer_bytes = 8;
    software.reduce_bytes = 4;
  }
  return software;
}

}  // namespace lockstep::plan
