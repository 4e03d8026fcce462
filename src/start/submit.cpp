// `lockstep submit`: writes job files for cluster engines.
#include "start/submit.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "config/resolve.h"
#include "plan/from_config/planned_job.h"
#include "plan/from_config/planned_model.h"
#include "plan/machines/cluster.h"
#include "plan/memory/memory.h"
#include "plan/search.h"
#include "start/completion.h"

namespace lockstep::start {
namespace {

constexpr std::string_view kSend = "--send";
constexpr double kGibibyte = 1024.0 * 1024 * 1024;
constexpr double kHostOfRank =
    4 * kGibibyte;               // for programs, data and pieces of a checkpoint, in bytes per rank
constexpr double kSpare = 1.25;  // factor for host memory, relative to the prediction
constexpr int64_t kCpusOfGpu = 12;  // common servers have 96 cores for 8 GPUs
constexpr int64_t kCpusOfRank = 4;  // for ranks that compute on the CPU

config::ResolveOptions submit_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "submit";
  options.usage = fmt::format(
      "lockstep submit --on {} job.yaml [key=value...]\nPrint the engine's job file; --send "
      "submits it.\n",
      fmt::join(engine_names(), "|"));
  options.purpose = config::Purpose::kPredict;
  options.required = {"training.output_dir", "data.train"};
  options.flags = {
      {"on", Kind::kValue, "Cluster engine. string: slurm, kubernetes, ray or ssh"},
      {"send",
       Kind::kSwitch,
       "Write the file to submit-NAME.* in the current folder and run the engine's command"},
      {"nodes", Kind::kValue, "Number of machines. int; default: as few as the ranks need"},
      {"ranks-per-node",
       Kind::kValue,
       "Ranks per machine, one per GPU. int; default: the device's usual number"},
      {"gpu", Kind::kValue, "Device type for the plan. string; default: h100-80gb"},
      {"cpus", Kind::kValue, "Cores per machine. int; default: by its ranks"},
      {"time", Kind::kValue, "SLURM's time limit. string; default: 24:00:00"},
      {"name", Kind::kValue, "Name of the job. string; default: lockstep"},
      {"image", Kind::kValue, "Container image for Kubernetes. string; default: lockstep:1"},
      {"hosts", Kind::kValue, "Machines for ssh: first,second. list"},
  };
  return options;
}

/// Replaces a plain "job.yaml" by "-c job.yaml".
std::vector<std::string> with_config_option(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& word : arguments) {
    const bool is_file = (word.ends_with(".yaml") || word.ends_with(".yml")) &&
                         word.find('=') == std::string::npos && !word.starts_with("-");
    const bool is_value = !words.empty() && words.back().starts_with("-") &&
                          words.back() != kSend && words.back().find('=') == std::string::npos;
    if (is_file && !is_value) {
      words.emplace_back("-c");
    }
    words.push_back(word);
  }
  return words;
}

/// Returns the arguments for `lockstep train`, which are all except the flags of this command.
std::vector<std::string> training_words(
    const std::vector<std::string>& words, const std::vector<config::Flag>& flags) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const bool is_ours = std::any_of(flags.begin(), flags.end(), [&](const config::Flag& flag) {
      return name == "--" + flag.name;
    });
    if (!is_ours) {
      kept.push_back(words[i]);
    } else if (name.size() == words[i].size() && name != kSend) {
      ++i;  // skip the value of the flag
    }
  }
  return kept;
}

std::vector<std::string> split_hosts(const std::string& text) {
  std::vector<std::string> hosts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    hosts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return hosts;
}

/// Throws unless the name is valid as a host name, as all engines require.
void check_name(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  if (name.empty() || name.size() > 40 || name.front() == '-' || name.back() == '-' ||
      !std::all_of(name.begin(), name.end(), is_allowed)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--name {}: not a valid job name on every engine", name),
        "use at most 40 lower-case letters, digits and inner hyphens");
  }
}

struct Shape {
  int64_t nodes = 1, ranks_per_node = 1;
  int64_t ranks() const { return nodes * ranks_per_node; }
};

/// Determines the number of ranks and nodes from the flags, or from the sizes of `parallel` if they
/// are not set.
Shape shape_of(const config::Resolution& resolution, const plan::Device& device) {
  const config::ParallelSection& parallel = resolution.config.parallel;
  const int64_t others = parallel.tensor * parallel.pipeline * parallel.context;
  const int64_t wanted = others * parallel.data.value_or(1);
  const auto nodes = resolution.integer("nodes", 1);
  const int64_t most =
      resolution.integer("ranks-per-node", 1)
          .value_or(
              nodes ? device.devices_per_node : std::min<int64_t>(wanted, device.devices_per_node));
  return {nodes.value_or((wanted + most - 1) / most), most};
}

void refuse_misfit(const plan::Job& job, const plan::Cluster& cluster) {
  plan::SearchRequest request;
  request.base = job;
  request.base.split.clear();
  request.cluster = cluster;
  const auto larger = plan::find_larger_cluster(request);
  throw Error(
      ErrorKind::kConfig,
      fmt::format(
          "{} needs {:.1f} GiB on the fullest of {} ranks, and {} has {:.1f}",
          plan::plan_line(job),
          plan::largest(plan::estimate_memory(job)).peak.total() / kGibibyte,
          job.mesh.ranks(),
          cluster.slowest().device.name,
          plan::usable_bytes(cluster.slowest().device) / kGibibyte),
      larger ? fmt::format(
                   "{} devices would suffice: {}; `lockstep estimate` lists cheaper changes",
                   larger->devices,
                   plan::plan_line(larger->plan.job))
             : "`lockstep estimate` lists changes that save memory");
}

/// Computes the host memory of a machine in whole GiB, and the line with the planner's prediction.
void plan_resources(const config::Resolution& resolution, Submission& run) {
  const config::Config& config = resolution.config;
  const plan::Device& device = plan::find_device(resolution.value("gpu").value_or("h100-80gb"));
  const Shape shape = shape_of(resolution, device);
  run.nodes = shape.nodes;
  run.ranks_per_node = shape.ranks_per_node;
  run.on_gpus = !config.training.use_cpu;
  plan::Job job =
      plan::planned_job(config, plan::planned_model(config), shape.ranks(), shape.ranks_per_node);
  if (!run.on_gpus) {
    plan::run_on_cpu(job.software, config.training);
  }
  const plan::Memory peak = plan::largest(plan::estimate_memory(job)).peak;
  const plan::Cluster cluster = plan::uniform_cluster(device, static_cast<int>(shape.ranks()));
  if (run.on_gpus && !plan::fits(job, cluster)) {
    refuse_misfit(job, cluster);
  }
  const double host = kHostOfRank + peak.host + (run.on_gpus ? 0 : peak.total());
  run.memory_per_node = static_cast<int64_t>(
      std::ceil(kSpare * host * static_cast<double>(shape.ranks_per_node) / kGibibyte));
  run.cpus_per_node = resolution.integer("cpus", 1).value_or(
      shape.ranks_per_node * (run.on_gpus ? kCpusOfGpu : kCpusOfRank));
  run.predicted = fmt::format(
      "planned: {}; {:.1f} GiB per rank{}",
      plan::plan_line(job),
      peak.total() / kGibibyte,
      run.on_gpus ? " on " + device.name : " of host memory");
}

/// Writes the file and replaces this process by the engine's command.
[[noreturn]] void send(const Engine& engine, const Submission& run, const std::string& text) {
  std::string file = fmt::format("submit-{}{}", run.name, engine.extension);
  write_file_atomically(file, text, ErrorKind::kEnvironment);
  std::vector<char*> command;
  for (const char* word : engine.command) {
    if (word != nullptr) {
      command.push_back(const_cast<char*>(word));
    }
  }
  command.push_back(file.data());
  log_info(
      "{} {}", fmt::join(std::vector<std::string>(command.begin(), command.end() - 1), " "), file);
  command.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(command[0], command.data());
  throw Error(
      ErrorKind::kEnvironment,
      fmt::format("cannot run {}: {}", command[0], std::strerror(errno)),
      fmt::format(
          "{} is written; submit it on a machine of the cluster that has {}", file, command[0]));
}

}  // namespace

int run_submit(std::vector<std::string> arguments) {
  const config::ResolveOptions options = submit_options();
  const std::vector<std::string> words = with_config_option(arguments);
  const config::Resolution resolution = config::resolve(words, options);
  if (resolution.help) {
    return print_help(options, resolution, words);
  }
  const auto engine = resolution.value("on");
  if (!engine) {
    throw Error(
        ErrorKind::kConfig,
        "lockstep submit: --on is required",
        fmt::format("give --on {}", fmt::join(engine_names(), "|")));
  }
  const Engine& found = find_engine(*engine);
  Submission run;
  run.name = resolution.value("name").value_or(run.name);
  check_name(run.name);
  run.time = resolution.value("time").value_or(run.time);
  run.image = resolution.value("image").value_or(run.image);
  run.hosts = split_hosts(resolution.value("hosts").value_or(""));
  run.training = training_words(words, options.flags);
  plan_resources(resolution, run);
  const std::string text = found.file(run);
  if (resolution.has("send")) {
    send(found, run, text);
  }
  fmt::print("{}", text);
  return 0;
}

}  // namespace lockstep::start
