// What is known of the systems whose runs are published.
#include <regex>
#include <string>
#include <string_view>

#include "base/text.h"
#include "published_runs/runs.h"

namespace lockstep::plan {

namespace {

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

// Megatron's blocks on DeepSpeed's pipeline and optimizer.
Software megatron_deepspeed() {
  Software software = megatron_2021();
  software.gradient_bytes = 2;
  // Random states go through the host; BLOOM's runs hung unless the host waited for every launch.
  software.waits_for_host = true;
  software.context_bytes = 4.5e9;  // a dozen communicators besides the driver
  software.bucket_bytes = 3e9;     // two of 500 million numbers, and the float32 copy of one
  return software;
}

Software deepspeed_zero3() {
  Software software = megatron_2021();
  software.overlap_data = true;
  software.gradient_bytes = 2;
  software.reduce_each_micro_batch = true;
  software.flat_gather = true;
  software.unit_parameters = 1e9;  // stage3_max_live_parameters
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

// As FSDP first came, and what was built on it: torch's own operations, one kernel each.
Software fully_sharded_2023() {
  Software software = fully_sharded();
  software.copy_bytes = 6;  // 16-bit gradients are widened before they are reduced
  software.fused_elementwise = false;
  software.logit_bytes = 6;  // and, in float32, the logarithms that its gradient is made from
  return software;
}

// FSDP2, and what was built on it.
Software fully_sharded_2024(const std::string& system) {
  Software software = fully_sharded();
  software.fused_elementwise = mentions(system, "compile");
  software.overlap_tensor = mentions(system, "async") ? 0.5 : 0;  // the gathers, not the reductions
  software.copy_bytes = 14;   // two gathers copied out, a gradient copied in
  software.merge_bytes = 32;  // in float32, by separate kernels
  return software;
}

// The earliest year that a text names, as 20YY or in an "arXiv:YYMM."; 0 where there is none.
int year_of(const std::string& text) {
  static const std::regex kYear(R"(arXiv:(\d\d)\d\d\.|(?:^|[^0-9A-Za-z])20(\d\d)(?=\d\d|\D|$))");
  int earliest = 0;
  for (std::sregex_iterator found(text.begin(), text.end(), kYear), end; found != end; ++found) {
    const std::ssub_match& digits = (*found)[1].matched ? (*found)[1] : (*found)[2];
    const int year = 2000 + std::stoi(digits.str());
    const bool is_one = year >= 2017 && year < 2040;  // sequences have 2048 tokens
    earliest = is_one && (earliest == 0 || year < earliest) ? year : earliest;
  }
  return earliest;
}

bool before_fused_attention(const Run& run, const Device& device) {
  constexpr int kFlashAttention = 2022;  // the year of its paper
  const int year = year_of(run.cell("source") + ' ' + run.cell("system"));
  if (year != 0) {
    return year <= kFlashAttention;
  }
  // Where nothing says the year: before Ampere (slower than an A100, and without 8-bit products, as
  // later small ones have), and in float16, which bfloat16 took the place of.
  constexpr double kAmpere = 3e14;
  return (device.flops16 < kAmpere && device.flops8 == 0) ||
         mentions(run.cell("precision"), "fp16");
}

// A system that nothing is known of is taken for what was usual when and where it ran.
Software of_its_time(const Run& run, const Job& job, const Device& device, bool early) {
  constexpr double kHopper = 9e14;
  const std::string& system = run.cell("system");
  const std::string& sharding = run.cell("zero_or_fsdp");
  if (early && mentions(sharding + system, "DeepSpeed")) {
    return job.zero_stage == 3 ? deepspeed_zero3() : megatron_deepspeed();
  }
  if (early && mentions(sharding, "ZeRO-3")) {
    return deepspeed_zero3();
  }
  if (mentions(sharding, "FSDP2")) {
    return fully_sharded_2024(system);
  }
  if (job.zero_stage >= 2) {
    Software software = fully_sharded_2023();
    software.fused_attention = !early;
    software.dropout = early;
    return software;
  }
  if (early) {
    return megatron_2021();
  }
  Software software;
  if (device.flops16 >= kHopper) {
    software.attention_generation = kCudnnAttention;
  }
  return software;
}

}  // namespace

Software software_of(const Run& run, const Job& job, const Device& device) {
  const std::string& system = run.cell("system");
  const bool early = before_fused_attention(run, device);
  Software software;
  if (mentions(system, "Megatron-DeepSpeed")) {
    software = megatron_deepspeed();
  } else if (mentions(system, "DeepSpeed ZeRO-3")) {
    software = deepspeed_zero3();
  } else if (mentions(system, "zero-bubble")) {
    software = megatron_2021();
    software.sum_bytes_moved = 0;  // added by the product itself
    software.lone_optimizer_steps = true;
    software.fused_softmax = false;  // by how much longer F takes than W in the published profile
    software.fragmentation = 0;      // its peaks are what was allocated, not what was reserved
  } else if (!early && (mentions(system, "Megatron") || mentions(system, "NeMo"))) {
    software.overlap_tensor = 1;
    software.gradient_bytes = 4;
    software.reduce_bytes = mentions(system, "Bridge") ? 2 : 4;  // its recipes reduce in 16 bits
    software.attention_generation = kCudnnAttention;
  } else if (mentions(system, "Megatron") || mentions(system, "OneFlow")) {
    software = megatron_2021();
    // torch's DDP; OneFlow's collectives run among the compute where there are tensor ranks.
    software.overlap_data =
        mentions(system, "2020") || (mentions(system, "OneFlow") && job.mesh.tensor == 1);
    software.early_libraries = mentions(system, "2020");
    if (mentions(
            system, "OneFlow")) {  // actors send and receive beside the compute, without the host
      software.blocking_messages = false;
      software.waits_for_messages = false;
      software.fused_score_dropout = true;
    }
    if (mentions(system, "selective")) {
      software.sum_bytes_moved = 0;  // since 2022 the product of a weight's gradient adds it
    }
  } else if (mentions(system, "llm-foundry")) {
    software = fully_sharded_2023();
    software.attention_generation = kTritonAttention;
    software.early_libraries = true;  // 2023; only on devices that were new then
  } else if (mentions(system, "llm.c")) {
    software.attention_generation = kCudnnAttention;
  } else if (mentions(system, "torchtitan")) {
    software = fully_sharded_2024(system);
  } else if (mentions(system, "LLM.Q")) {
    software.offloads_activations = true;
    software.attention_generation = kCudnnAttention;
    software.logit_bytes = 0.5;  // the head is computed in pieces
  } else {
    software = of_its_time(run, job, device, early);
  }
  if (mentions(run.cell("precision"), "bf16 optimizer states")) {
    software.optimizer_bytes = 4;  // the weights are their own master copy
    software.update_bytes = 16;
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
