// `lockstep estimate`: estimates the memory of each rank.
#include "start/estimate.h"

#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "config/resolve.h"
#include "plan/from_config/planned_job.h"
#include "plan/from_config/planned_model.h"
#include "plan/memory/activations.h"
#include "plan/memory/memory_table.h"
#include "plan/memory/phases.h"
#include "plan/remedies.h"
#include "plan/search.h"
#include "start/completion.h"

namespace lockstep::start {

namespace {

config::ResolveOptions estimate_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "estimate";
  options.usage =
      "lockstep estimate --model gpt2-xl|config.json|DIR [key=value]...\n"
      "Estimate the memory of each rank by kind and how to reduce it. Keys are those of `lockstep "
      "train`.\n";
  options.common = {
      {"Keys of the run",
       {"data.sequence_length",
        "training.gradient_accumulation_steps",
        "training.per_device_train_batch_size",
        "training.bf16",
        "training.optim",
        "parallel.tensor",
        "parallel.pipeline",
        "parallel.context",
        "parallel.expert",
        "parallel.zero_stage",
        "parallel.recompute",
        "lora.r",
        "quantization.bits"}}};
  options.purpose = config::Purpose::kPredict;
  options.flags = {
      {"model", Kind::kKey, "The same as model.path; also the name of a preset", "model.path"},
      {"gpu", Kind::kValue, "Device type. string; default: h100-80gb (--gpu list prints all)"},
      {"gpus", Kind::kValue, "Number of devices. int; default: product of the sizes of `parallel`"},
      {"lora-rank",
       Kind::kKey,
       "Rank of LoRA adapters on lora.target_modules; only these are trained. int",
       "lora.r"},
      {"bits",
       Kind::kKey,
       "Quantize the frozen base weights to 4 or 8 bits. int",
       "quantization.bits"},
      {"double-quant",
       Kind::kKey,
       "Also quantize the block scales (4 bits only). bool",
       "quantization.double_quant"},
      {"json", Kind::kSwitch, "Print a JSON object only"},
  };
  return options;
}

int64_t devices_of(const config::Resolution& resolution) {
  const config::ParallelSection& parallel = resolution.config.parallel;
  const int64_t others = parallel.tensor * parallel.pipeline * parallel.context;
  return resolution.integer("gpus", 1).value_or(others * parallel.data.value_or(1));
}

nlohmann::json as_json(const plan::Memory& m) {
  return {
      {"parameters", m.parameters},
      {"gradients", m.gradients},
      {"optimizer", m.optimizer},
      {"activations", m.activations},
      {"working", m.working},
      {"logits", m.logits},
      {"gathered", m.gathered},
      {"buckets", m.buckets},
      {"fragmentation", m.fragmentation},
      {"context", m.context},
      {"kept", m.kept},
      {"host", m.host},
      {"nvme", m.nvme},
      {"total", m.total()}};
}

nlohmann::json as_json(const plan::Job& job, const plan::Cluster& cluster) {
  nlohmann::json stages = nlohmann::json::array();
  const std::vector<plan::BlockCounts> blocks = plan::rank_blocks(job);
  for (const plan::StageMemory& stage : plan::estimate_memory(job)) {
    nlohmann::json entry = as_json(stage.peak);
    entry["stage"] = stage.stage;
    entry["blocks"] = stage.blocks;
    entry["micro_batches_in_flight"] = stage.in_flight;
    entry["activations_by_layer"] = nlohmann::json::array();
    plan::visit_blocks(blocks[stage.stage], [&](plan::BlockKind kind, double count) {
      const double bytes = stage.in_flight * plan::block_activations(job, kind, job.recompute);
      for (int layer = 0; layer < static_cast<int>(count); ++layer) {
        entry["activations_by_layer"].push_back(bytes);
      }
    });
    for (const plan::Phase phase : plan::kPhases) {
      entry["phases"][plan::phase_name(phase)] = as_json(plan::memory_in(phase, job, stage.peak));
    }
    stages.push_back(std::move(entry));
  }
  const plan::Device& device = cluster.slowest().device;
  return {
      {"plan", plan::plan_line(job)},
      {"device", device.name},
      {"usable_bytes", plan::usable_bytes(device)},
      {"host_bytes", device.host_bytes()},
      {"peak_bytes", plan::largest(plan::estimate_memory(job)).peak.total()},
      {"fits", plan::fits(job, cluster)},
      {"stages", stages}};
}

// Returns the job of a configuration. Other flags of the command are applied later.
plan::Job job_of(
    const config::Resolution& resolution,
    const config::Config& config,
    const plan::Device& device) {
  plan::Job job = plan::planned_job(
      config, plan::planned_model(config), devices_of(resolution), device.devices_per_node);
  if (config.quantization.bits && job.adapter_rank == 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "{} bits apply to frozen weights, and all weights are trained",
            *config.quantization.bits),
        "add lora.r, such as --lora-rank 16");
  }
  if (device.is_cpu) {
    plan::run_on_cpu(job.software, config.training);
  }
  if (job.mesh.tensor > job.model.heads || job.mesh.pipeline > job.model.layers) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "tensor {} and pipeline {} are incompatible with {} heads and {} layers",
            job.mesh.tensor,
            job.mesh.pipeline,
            job.model.heads,
            job.model.layers),
        fmt::format(
            "use parallel.tensor up to {} and parallel.pipeline up to {}",
            job.model.heads,
            job.model.layers));
  }
  return job;
}

// Returns suggested changes to the configuration that are not properties of a job.
std::vector<plan::Change> other_changes(
    const config::Resolution& resolution, const plan::Device& device) {
  std::vector<plan::Change> changes;
  config::Config half = resolution.config;
  if (!half.training.bf16 && !half.training.fp16) {
    half.training.bf16 = true;
    changes.push_back({"training.bf16=true", job_of(resolution, half, device)});
  }
  config::Config narrow = resolution.config;
  if (narrow.training.optim.starts_with("adamw_torch")) {
    narrow.training.optim = "adamw_8bit";
    changes.push_back({"training.optim=adamw_8bit", job_of(resolution, narrow, device)});
  }
  return changes;
}

void print_larger_cluster(const plan::Job& job, const plan::Cluster& cluster) {
  plan::SearchRequest request;
  request.base = job;
  request.base.split.clear();
  request.cluster = cluster;
  if (const auto larger = plan::find_larger_cluster(request)) {
    std::cout << fmt::format(
        "  {} devices would suffice (lockstep plan --gpu {} --gpus {}): {}\n",
        larger->devices,
        cluster.slowest().device.name,
        larger->devices,
        plan::plan_line(larger->plan.job));
  }
}

void print_remedies(
    const plan::Job& job, const plan::Cluster& cluster, const std::vector<plan::Change>& others) {
  constexpr size_t kShown = 5;
  const double now = plan::largest(plan::estimate_memory(job)).peak.total();
  const double seconds = plan::simulate(job, cluster).step_seconds;
  const std::vector<plan::Remedy> remedies = plan::remedies(job, cluster, others);
  const bool is_enough = !remedies.empty() && remedies.front().fits;
  std::cout
      << (is_enough ? "\nthe cheapest changes that make it fit\n"
                    : "\nno one or two changes make it fit; the largest savings\n");
  size_t shown = 0;
  for (const plan::Remedy& remedy : remedies) {
    if (shown == kShown || (is_enough && !remedy.fits)) {
      break;
    }
    ++shown;
    std::cout << fmt::format(
        "  {}: saves {}, the step takes {:+.0f}%\n",
        remedy.change,
        plan::bytes_text(now - remedy.bytes),
        100 * (remedy.seconds / seconds - 1));
  }
  if (!is_enough) {
    print_larger_cluster(job, cluster);
  }
}

}  // namespace

int run_estimate(std::vector<std::string> arguments) {
  const config::Resolution resolution = config::resolve(arguments, estimate_options());
  if (resolution.help) {
    return print_help(estimate_options(), resolution, arguments);
  }
  const std::string name = resolution.value("gpu").value_or("h100-80gb");
  if (name == "list") {
    for (const plan::Device& device : plan::device_library()) {
      std::cout << fmt::format(
          "{:<16} {:6.0f} GB  {}\n", device.name, device.memory_bytes / 1e9, device.source);
    }
    return 0;
  }
  const plan::Device& device = plan::find_device(name);
  const plan::Job job = job_of(resolution, resolution.config, device);
  const plan::Cluster cluster = plan::uniform_cluster(device, job.mesh.ranks());
  plan::check_float8(job, cluster);
  if (resolution.has("json")) {
    std::cout << as_json(job, cluster).dump() << "\n";
    return 0;
  }
  std::cout << fmt::format(
      "{}, {}, {}\n{}\n\n",
      plan::parameters_text(job.model),
      job.source > 0 ? fmt::format("a source of {} and a target of {}", job.source, job.sequence)
                     : fmt::format("sequence {}", job.sequence),
      plan::precision_text(job),
      plan::plan_line(job));
  std::cout << plan::memory_table(job, device);
  if (!plan::fits(job, cluster)) {
    print_remedies(job, cluster, other_changes(resolution, device));
  }
  return 0;
}

}  // namespace lockstep::start
