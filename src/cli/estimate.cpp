#include "cli/estimate.h"

#include <iostream>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "cli/job.h"
#include "config/resolve.h"
#include "plan/search.h"
#include "train/planned_job.h"

namespace lockstep::cli {

namespace {

config::ResolveOptions resolve_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "estimate";
  options.purpose = config::Purpose::kPredict;
  options.flags = {
      {"model", Kind::kKey, "The same as model.path; also the name of a preset", "model.path"},
      {"gpu",
       Kind::kValue,
       "The device, such as h100-80gb (the default) or a100-40gb; --gpu list names all"},
      {"gpus", Kind::kValue, "Devices; else the product of the sizes of `parallel`"},
      {"lora-rank",
       Kind::kValue,
       "Train adapters of this rank on every matrix of the blocks alone"},
      {"bits", Kind::kValue, "Of the frozen weights beside them: 16, 8 or 4"},
      {"json", Kind::kSwitch, "One JSON object on stdout, and nothing else"},
  };
  return options;
}

int64_t devices_of(const config::Resolution& resolution) {
  const config::ParallelSection& parallel = resolution.config.parallel;
  const int64_t others = parallel.tensor * parallel.pipeline * parallel.context;
  return resolution.integer("gpus", 1).value_or(others * parallel.data.value_or(1));
}

void read_adapters(const config::Resolution& resolution, plan::Job& job) {
  job.adapter_rank = resolution.integer("lora-rank", 1).value_or(0);
  const std::optional<int64_t> bits = resolution.integer("bits", 1);
  if (bits && job.adapter_rank == 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--bits {} is of frozen weights, and all are trained", *bits),
        "give --lora-rank too, such as --lora-rank 16");
  }
  if (bits && *bits != 16 && *bits != 8 && *bits != 4) {
    throw Error(ErrorKind::kConfig, fmt::format("--bits {}", *bits), "16, 8 or 4");
  }
  // 4 bits have a scale of 8 bits for every 64 numbers, and those scales one of 32 for every 256.
  job.frozen_bytes = !bits || *bits == 16 ? 2 : *bits == 8 ? 1 : 0.5 + (8 + 32.0 / 256) / 64 / 8;
}

nlohmann::json as_json(const plan::Job& job, const plan::Device& device) {
  nlohmann::json stages = nlohmann::json::array();
  for (const plan::StageMemory& stage : plan::estimate_memory(job)) {
    const plan::Memory& m = stage.peak;
    stages.push_back(
        {{"stage", stage.stage},
         {"blocks", stage.blocks},
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
         {"host", m.host},
         {"nvme", m.nvme},
         {"total", m.total()}});
  }
  const double most = plan::largest(plan::estimate_memory(job)).peak.total();
  return {
      {"device", device.name},
      {"usable_bytes", plan::usable_bytes(device)},
      {"peak_bytes", most},
      {"fits", most <= plan::usable_bytes(device)},
      {"stages", stages}};
}

void print_remedies(const plan::Job& job, const plan::Cluster& cluster) {
  const double now = plan::largest(plan::estimate_memory(job)).peak.total();
  const double seconds = plan::simulate(job, cluster).step_seconds;
  std::cout << "\nthe cheapest changes that would make it fit\n";
  int shown = 0;
  for (const plan::Remedy& remedy : plan::remedies(job, cluster)) {
    if (++shown > 5) {
      break;
    }
    std::cout << fmt::format(
        "  {}: saves {:.1f} GB, the step takes {:+.0f}%{}\n",
        remedy.change,
        (now - remedy.bytes) / 1e9,
        100 * (remedy.seconds / seconds - 1),
        remedy.fits ? "" : " (not enough alone)");
  }
  if (shown == 0) {
    std::cout << "  none alone: see `lockstep plan` for combinations\n";
  }
}

}  // namespace

int run_estimate(std::vector<std::string> arguments) {
  const config::Resolution resolution = config::resolve(arguments, resolve_options());
  if (resolution.help) {
    std::cout << "lockstep estimate --model gpt2-xl|config.json|DIR [parallel.…] [training.…] "
                 "[--gpu h100-80gb]\n"
                 "  [--gpus N] [--lora-rank 16 [--bits 4]] [--json]\nMemory of each rank by kind, "
                 "what fits, and what would "
                 "make it fit.\n";
    return 0;
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
  plan::Job job = train::planned_job(
      resolution.config,
      planned_model(resolution.config),
      devices_of(resolution),
      device.devices_per_node);
  read_adapters(resolution, job);
  if (device.is_cpu) {
    train::run_on_cpu(job.software);
  }
  const plan::Cluster cluster = plan::uniform_cluster(device, job.mesh.ranks());
  if (resolution.has("json")) {
    std::cout << as_json(job, device).dump() << "\n";
    return 0;
  }
  const plan::ParameterCounts counts = plan::count_parameters(job.model);
  std::cout << fmt::format(
      "{:.3f} billion parameters, {}, {}\n{}\n\n",
      counts.total() / 1e9,
      job.source > 0 ? fmt::format("a source of {} and a target of {}", job.source, job.sequence)
                     : fmt::format("sequence {}", job.sequence),
      job.precision == plan::Precision::kFloat32 ? "float32" : "16 bits with float32 masters",
      plan::plan_line(job));
  std::cout << plan::memory_table(job, device);
  if (plan::largest(plan::estimate_memory(job)).peak.total() > plan::usable_bytes(device)) {
    print_remedies(job, cluster);
  }
  return 0;
}

}  // namespace lockstep::cli
