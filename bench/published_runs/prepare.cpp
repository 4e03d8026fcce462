// How a published row becomes a job.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "plan/memory/memory.h"
#include "plan/simulate.h"
#include "published_runs/runs.h"

namespace lockstep::plan {

namespace {

Precision precision_of(const std::string& text) {
  const std::string plain = plain_name(text);
  if (mentions(plain, "fp8")) {
    return Precision::kFloat8;
  }
  return plain == "fp32" || plain == "float32" || plain == "tf32" ? Precision::kFloat32
                                                                  : Precision::kMixed16;
}

// Blackwell's products take a scale for every 32 numbers; before it such scales are applied between
// products of one scale, and cost as little.
Scaling scaling_of(const std::string& text, const Device& device) {
  const std::string plain = plain_name(text);
  if (mentions(plain, "row")) {
    return Scaling::kRow;
  }
  const bool blocks =
      mentions(plain, "mx") || mentions(plain, "block") || mentions(plain, "altfp8granularity");
  return blocks && device.flops8 > 3e15 ? Scaling::kBlock : Scaling::kTensor;
}

Recompute recompute_of(const std::string& text) {
  if (text.starts_with("full")) {
    return Recompute::kFull;
  }
  if (mentions(text, "layer")) {
    return Recompute::kHalf;
  }
  if (mentions(text, "op")) {
    return Recompute::kOperations;
  }
  return mentions(text, "selective") ? Recompute::kAttention : Recompute::kNone;
}

// "interleaved-1F1B VP=4", "ZB-2p", "1F1B-I": the kind and the virtual stages.
void read_schedule(const std::string& text, Job& job) {
  const std::string plain = plain_name(text);
  using schedule::Kind;
  job.schedule = Kind::kOneFOneB;
  if (mentions(plain, "zbh1")) {
    job.schedule = Kind::kZbH1;
  } else if (mentions(plain, "zbh2")) {
    job.schedule = Kind::kZbH2;
  } else if (mentions(plain, "zb1p") || mentions(plain, "zb2p")) {
    job.schedule = Kind::kZbH2;
    job.greedy_held = job.mesh.pipeline * (mentions(plain, "zb2p") ? 2 : 1);
  } else if (mentions(plain, "zbv")) {
    job.schedule = Kind::kZbV;
    job.virtual_stages = 2;
  } else if (plain.starts_with("gpipe")) {
    job.schedule = Kind::kGpipe;
  } else if (mentions(plain, "interleaved") || mentions(plain, "1f1bi")) {
    job.schedule = Kind::kInterleaved;
    job.virtual_stages = 2;
    const size_t at = text.find('=');
    if (at != std::string::npos) {
      job.virtual_stages = std::max(1, std::atoi(text.c_str() + at + 1));
    } else if (mentions(plain, "1f1bi") || mentions(plain, "1layer")) {
      job.virtual_stages = static_cast<int>(std::ceil(
          static_cast<double>(job.model.layers) / job.mesh.pipeline));  // one block a chunk
    }
  }
  if (job.mesh.pipeline == 1) {
    job.schedule = Kind::kOneFOneB;
    job.virtual_stages = 1;
  }
}

int zero_stage_of(const std::string& text) {
  const std::string plain = plain_name(text);
  if (mentions(plain, "zero3") || mentions(plain, "fullshard") || mentions(plain, "fsdp")) {
    return mentions(plain, "shardgradop") ? 2 : 3;
  }
  if (mentions(plain, "zero0")) {
    return 0;
  }
  return mentions(plain, "zero2")                                  ? 2
         : mentions(plain, "zero") || mentions(plain, "optimizer") ? 1
                                                                   : 0;
}

// As many as models of this width have (Brown et al., 2020, table 2.1): heads of 64 numbers up to a
// width of 1024, of about 96 up to 3072, of 128 above.
double usual_heads(double hidden) {
  return hidden / (hidden <= 1024 ? 64 : hidden <= 3072 ? 96 : 128);
}

// The nearest number that divides the hidden size, and among the tensor ranks.
double likely_heads(int64_t hidden, int64_t tensor) {
  const double usual = usual_heads(static_cast<double>(hidden));
  int64_t best = 0;
  for (int64_t heads = tensor; heads <= hidden; heads += tensor) {
    const auto off = [&](int64_t n) { return std::abs(static_cast<double>(n) - usual); };
    if (hidden % heads == 0 && (best == 0 || off(heads) < off(best))) {
      best = heads;
    }
  }
  return best > 0 ? static_cast<double>(best) : std::max(1.0, std::floor(usual + 0.5));
}

// Mixtures that rows name without their sizes. DeepSeek-V3's attention is none of ours.
std::optional<model::ModelConfig> named_mixture(const Run& run) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kNames{{
      {"qwen330ba3b", "qwen3-30b-a3b"},
      {"qwen3235ba22b", "qwen3-235b-a22b"},
      {"gptoss120b", "gpt-oss-120b"},
  }};
  const std::string name = plain_name(run.cell("model"));
  for (const auto& [part, preset] : kNames) {
    if (mentions(name, part)) {
      return model::preset(preset);
    }
  }
  return std::nullopt;
}

void fill_model(const Run& run, model::ModelConfig& model) {
  const auto count = [&](const char* column, double fallback) {
    return static_cast<int64_t>(std::llround(run.number(column).value_or(fallback)));
  };
  model.layers = count("layers", 0);
  model.hidden_size = count("hidden", 0);
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto tensor = static_cast<int64_t>(std::clamp(run.number("tp").value_or(1), 1.0, 1e6));
  model.heads = count("heads", likely_heads(model.hidden_size, tensor));
  model.kv_heads = count("kv_heads", static_cast<double>(model.heads));
  model.head_dim = std::max<int64_t>(1, model.hidden_size / std::max<int64_t>(model.heads, 1));
  model.intermediate_size = count("ffn", 4 * hidden);
  model.vocab_size = count("vocab", 51200);
  const std::string name = plain_name(run.cell("model"));
  const bool llama = mentions(name, "llama") || mentions(name, "qwen") ||
                     mentions(name, "smollm") || mentions(name, "mistral");
  model.family = llama ? model::Family::kLlama : model::Family::kGpt2;
  model.gated_mlp = llama;
  model.tie_word_embeddings = !llama;
  if (mentions(name, "qwen25") && model.hidden_size < 3000) {
    model.tie_word_embeddings = true;
  }
  if (mentions(name, "qwen") && !run.number("vocab")) {
    model.vocab_size = 151936;
  }
}

// What a row leaves open is the fastest that fits, as whoever ran it would have chosen.
void choose_what_fits(Job& job, const Device& device, bool own_memory) {
  const Cluster cluster = uniform_cluster(device, job.mesh.ranks());
  const double room = usable_bytes(device);
  Job best = job;
  double best_seconds = 0;
  const auto consider = [&](const Job& candidate) {
    if (largest(estimate_memory(candidate)).peak.least() > room) {
      return false;
    }
    Job by_hand =
        candidate;  // what recomputation costs is the same in a schedule that is looked for
    by_hand.greedy_held = 0;
    const double seconds = simulate(by_hand, cluster).step_seconds;
    if (best_seconds == 0 || seconds < best_seconds) {
      best = candidate;
      best_seconds = seconds;
    }
    return true;
  };
  for (const Offload offload : {Offload::kNone, Offload::kOptimizer, Offload::kAll}) {
    Job candidate = job;
    candidate.offload = offload;
    for (const Recompute recompute :
         {Recompute::kNone, Recompute::kElementwise, Recompute::kAttention}) {
      candidate.recompute = recompute;
      consider(candidate);
    }
    candidate.recompute = Recompute::kFull;
    for (int eighths = 1; eighths <= 8; ++eighths) {  // as few blocks as will do
      candidate.recompute_share = eighths / 8.0;
      if (consider(candidate)) {
        break;
      }
    }
    // A host that is nearly as near as another device holds activations, beside the compute.
    candidate.recompute = Recompute::kNone;
    candidate.recompute_share = 1;
    const bool near = device.host_bandwidth >= 200e9 && job.mesh.pipeline == 1;
    for (int eighths = 1; near && offload == Offload::kNone && eighths <= 8; ++eighths) {
      candidate.activations_away = eighths / 8.0;
      if (consider(candidate)) {
        break;
      }
    }
    if (!own_memory && best_seconds > 0) {
      break;
    }
  }
  if (best_seconds == 0) {
    best.recompute = Recompute::kFull;
    best.offload = job.mesh.ranks() <= device.devices_per_node ? Offload::kAll : Offload::kNone;
  }
  job = best;
}

// Operations that a row counts with recomputation were recomputed.
bool counts_recomputation(const Run& run) {
  return mentions(run.cell("system"), "MT-NLG") ||
         std::any_of(run.metrics.begin(), run.metrics.end(), [](const Run::Metric& metric) {
           return metric.name.starts_with("hw_tflops");
         });
}

std::string why_not(const Run& run) {
  if (named_mixture(run)) {
    return run.number("n_gpus") && run.number("global_batch") ? "" : "no devices or global batch";
  }
  if (!run.number("layers") || !run.number("hidden")) {
    return "no layers or hidden size";
  }
  if (run.number("ep").value_or(1) > 1) {
    return "mixture of experts";
  }
  if (!run.number("n_gpus")) {
    return "no number of devices";
  }
  if (!run.number("global_batch")) {
    return "no global batch";
  }
  return "";
}

void fill_mesh(const Run& run, Job& job) {
  const auto size = [&](const char* column) {
    return static_cast<int>(std::clamp(run.number(column).value_or(1), 1.0, 1e6));
  };
  job.mesh.tensor = size("tp");
  job.mesh.pipeline = size("pp");
  job.mesh.context = size("cp");
  const double others = static_cast<double>(job.mesh.tensor) * job.mesh.pipeline * job.mesh.context;
  const double devices = run.number("n_gpus").value_or(1);
  job.mesh.data = static_cast<int>(std::max(1.0, std::round(devices / others)));
}

// Larger ones compute faster, smaller ones wait less for the pipeline to fill.
void fastest_micro_batch(Job& job, int64_t share, const Device& device) {
  const Cluster cluster = uniform_cluster(device, job.mesh.ranks());
  Job candidate = job;
  candidate.recompute = Recompute::kFull;
  double best_seconds = 0;
  for (int64_t size = 1; size <= std::min<int64_t>(share, 16); ++size) {
    candidate.micro_batch = size;
    if (share % size != 0 ||
        largest(estimate_memory(candidate)).peak.total() > usable_bytes(device)) {
      continue;
    }
    const double seconds = simulate(candidate, cluster).step_seconds;
    if (best_seconds == 0 || seconds < best_seconds) {
      job.micro_batch = size;
      best_seconds = seconds;
    }
  }
}

void fill_micro_batch(const Run& run, Job& job, const Device& device) {
  const std::optional<double> given = run.number("micro_batch");
  if (given) {
    // Of a local batch that is the whole share of a data rank, torch's pipelines make as many
    // micro-batches as there are stages.
    const bool whole = *given * job.mesh.data >= static_cast<double>(job.global_batch);
    job.micro_batch = static_cast<int64_t>(*given);
    if (job.mesh.pipeline > 1 && whole) {
      job.micro_batch = std::max<int64_t>(1, job.micro_batch / stages_of(job));
    }
    return;
  }
  job.micro_batch = 1;
  if (job.mesh.pipeline > 1 && mentions(run.cell("source"), "DLPerf")) {
    constexpr int64_t kMicroBatches = 32;  // its reports: of every pipeline
    job.micro_batch = std::max<int64_t>(1, job.global_batch / job.mesh.data / kMicroBatches);
    return;
  }
  const int64_t share = std::max<int64_t>(1, job.global_batch / job.mesh.data);
  if (job.mesh.pipeline > 1) {
    fastest_micro_batch(job, share, device);
    return;
  }
  for (int64_t size = std::min<int64_t>(share, 16); size > 1; --size) {
    job.micro_batch = size;
    Job frugal = job;
    frugal.recompute = Recompute::kFull;
    if (share % size == 0 &&
        largest(estimate_memory(frugal)).peak.total() <= usable_bytes(device)) {
      return;
    }
  }
  job.micro_batch = 1;
}

// What is known of a measurement: how far it is to be trusted, and with which others it may be
// compared.
void note_conditions(const Run& run, Prepared& result) {
  const std::string& source = run.cell("source");
  if (mentions(source, "inconsistent")) {
    result.contradiction = "its source contradicts itself";
  }
  if (!mentions(result.system, "BLOOM")) {
    return;
  }
  // Each time is of one iteration; two runs of one configuration differ by up to 7.6%.
  result.spread = 0.08;
  // "PCI-Express/NUMA was improved today so all TFLOPs have changed for the better (1-5%), thus do
  // not compare today's numbers to yesterday's": 25 February 2022.
  for (const char* day : {"02-20", "02-21", "02-22", "02-23", "02-24"}) {
    if (mentions(source, day)) {
      result.conditions = "before its nodes' PCI Express was set right";
      result.slowdown = 1.03;
    }
  }
  if (run.cell("global_batch") == "1568" && run.cell("micro_batch") == "4" &&
      run.cell("dp") == "8") {
    result.contradiction = "as slow as a batch of 2048 of the same day";
  }
}

}  // namespace

Prepared prepare(const Run& run) {
  Prepared result;
  result.system = run.cell("system");
  result.model = run.cell("model");
  result.published_schedule = run.cell("schedule");
  note_conditions(run, result);
  result.skipped = why_not(run);
  if (!result.skipped.empty()) {
    return result;
  }
  try {
    std::string name = run.cell("gpu");
    name = name.substr(0, std::min(name.find(" ("), name.find(',')));
    const size_t words = name.find(" Performance");
    result.device = find_device(name.substr(0, words));
  } catch (const Error&) {
    result.skipped = "an unknown device";
    return result;
  }
  result.network_bandwidth = result.device.node_network;
  if (mentions(run.cell("gpu"), "Jean Zay")) {
    result.network_bandwidth = 6.25e9;  // four 100 Gb/s Omni-Path ports a node of eight
  }
  Job& job = result.job;
  if (const auto mixture = named_mixture(run)) {
    job.model = *mixture;
    result.is_mixture = true;
  } else {
    fill_model(run, job.model);
  }
  fill_mesh(run, job);
  job.expert_ranks = static_cast<int>(std::clamp(run.number("ep").value_or(1), 1.0, 1e6));
  if (job.mesh.data * job.mesh.context % job.expert_ranks != 0) {
    result.skipped = "experts spread over more than data and context ranks";
    return result;
  }
  const bool llama3 = mentions(run.cell("model"), "Llama-3");
  job.sequence = static_cast<int64_t>(run.number("seq").value_or(llama3 ? 8192 : 2048));
  job.model.max_positions = job.sequence;
  job.global_batch = static_cast<int64_t>(*run.number("global_batch"));
  job.precision = precision_of(run.cell("precision"));
  job.zero_stage = zero_stage_of(run.cell("zero_or_fsdp"));
  job.software = software_of(run, job, result.device);
  job.software.scaling = scaling_of(run.cell("precision"), result.device);
  if (mentions(run.cell("precision"), "fp32 grad")) {
    job.software.sum_bytes_moved = 2 + 4 + 4;  // the sum is read and written in float32
    job.software.gradient_bytes += 4;          // accumulated in float32 beside the 16-bit ones
    job.software.bucket_bytes += 3e9;          // and reduced in float32, whole
    job.software.reduce_bytes = 4;
    job.software.reduces_whole = true;
  }
  if (mentions(run.cell("zero_or_fsdp"), "mp=PURE")) {
    job.software.reduce_bytes = 2;
    job.software.copy_bytes = 0;
  }
  if (result.device.flops16 < 9e14) {
    job.software.attention_generation = std::min(job.software.attention_generation, 1.0);
  }
  // Only on the device that was new when it ran.
  job.software.early_libraries =
      job.software.early_libraries &&
      result.device.name.starts_with(mentions(result.system, "2020") ? "a100" : "h100");
  const std::string recompute = run.cell("recompute");
  const bool modern = job.software.fused_attention;
  job.sequence_parallel =
      job.mesh.tensor > 1 && (mentions(recompute, "+SP") || mentions(recompute, "+ SP") || modern);
  if (modern && job.zero_stage == 0) {
    job.zero_stage = 1;  // the sharded optimizer is what these systems do by default
  }
  read_schedule(run.cell("schedule"), job);
  fill_micro_batch(run, job, result.device);
  result.fixed_recompute = !recompute.empty();
  if (result.fixed_recompute) {
    job.recompute = recompute_of(recompute);
  } else if (counts_recomputation(run)) {
    job.recompute = Recompute::kFull;
  } else if (mentions(result.system, "torchtitan")) {
    job.recompute = Recompute::kOperations;  // its default
  } else {
    choose_what_fits(job, result.device, mentions(result.system, "LLM.Q"));
  }
  return result;
}

}  // namespace lockstep::plan
