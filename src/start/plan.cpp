// `lockstep plan`: finds the fastest plans.
#include "start/plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "config/resolve.h"
#include "model/model_config.h"
#include "plan/from_config/float8.h"
#include "plan/from_config/planned_job.h"
#include "plan/from_config/planned_model.h"
#include "plan/machines/error_bars.h"
#include "plan/search.h"
#include "start/completion.h"

namespace lockstep::start {

namespace {

config::ResolveOptions plan_options() {
  using Kind = config::Flag::Kind;
  config::ResolveOptions options;
  options.command = "plan";
  options.usage =
      "lockstep plan --model M [--gpu h100-80gb --gpus N | --cluster FILE] [key=value]...\n"
      "Find the fastest plans and explain them. Keys are those of `lockstep train`: "
      "parallel.tensor=2 is\nthen fixed instead of searched.\n";
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
      {"gpu", Kind::kValue, "Device type. string; default: h100-80gb"},
      {"gpus",
       Kind::kValue,
       "Number of devices. int; default: product of the given sizes, otherwise 8"},
      {"cluster",
       Kind::kValue,
       "Cluster file with nodes, devices and links, instead of --gpu and --gpus. path"},
      {"without", Kind::kValue, "Remove a node from the plan, such as node3. string; repeatable"},
      {"add", Kind::kValue, "Add a node to the plan, such as 8xh100-80gb. string; repeatable"},
      {"global-batch",
       Kind::kValue,
       "Sequences per step. int; default: 512, or the next number that the devices divide evenly"},
      {"explain",
       Kind::kSwitch,
       "Print where the time and memory of the best plan go, or of a written one: --explain "
       "plan.yaml"},
      {"tokens", Kind::kValue, "Tokens of the whole run, to predict its time and energy. int"},
      {"write", Kind::kValue, "Write the best plan as YAML for `lockstep train -c`. path"},
      {"svg", Kind::kValue, "Write the pipeline's timeline as an SVG. path"},
      {"trace", Kind::kValue, "Write the timeline as a Chrome or Perfetto trace. path"},
  };
  return options;
}

// Parses a string of digits. Returns -1 for other strings.
int whole_number(const std::string& text) {
  int number = -1;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc() && end == text.data() + text.size() ? number : -1;
}

void add_node(const std::string& text, plan::Cluster& cluster) {
  const size_t cross = text.find('x');
  const int count = cross == std::string::npos ? 0 : whole_number(text.substr(0, cross));
  if (count < 1 || count > 4096) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--add {}: not a number of devices and a name", text),
        "--add 8xh100-80gb");
  }
  const plan::Device& device = plan::find_device(text.substr(cross + 1));
  for (plan::NodeGroup& group : cluster.groups) {
    if (group.device.name == device.name && group.devices_per_node == count) {
      ++group.nodes;
      return;
    }
  }
  plan::NodeGroup group = plan::uniform_cluster(device, count).groups.front();
  group.devices_per_node = count;
  group.nodes = 1;
  group.name = "added";
  cluster.groups.push_back(group);
}

// Returns the valid values of --without: names in the file, and node0 to the last node.
std::string node_names(const plan::Cluster& cluster) {
  std::string names;
  int nodes = 0;
  for (const plan::NodeGroup& group : cluster.groups) {
    nodes += group.nodes;
    names += group.name == "node" ? "" : group.name + ", ";
  }
  return fmt::format("{}node0 to node{}", names, nodes - 1);
}

// Returns the index of a named node, counted over all groups. The name is node0, node1, ..., or the
// name of a group with a number. Without a number, it is the first remaining node of the group.
// Returns nullopt if the node does not exist.
std::optional<int> find_node(
    const std::string& text, const plan::Cluster& cluster, const std::set<int>& gone) {
  // Parses the number after a name. The name may itself end with digits.
  const auto number_behind = [&](const std::string& name) {
    return text.starts_with(name) ? whole_number(text.substr(name.size())) : -1;
  };
  int before = 0;                      // number of nodes in earlier groups
  std::map<std::string, int> of_name;  // count per name
  for (const plan::NodeGroup& group : cluster.groups) {
    for (int node = 0; group.name == text && node < group.nodes; ++node) {
      if (gone.count(before + node) == 0) {
        return before + node;
      }
    }
    int& own = of_name[group.name];
    for (const auto& [number, first] :
         {std::pair(number_behind(group.name), own), std::pair(number_behind("node"), before)}) {
      if (number >= first && number < first + group.nodes) {
        return before + number - first;
      }
    }
    own += group.nodes;
    before += group.nodes;
  }
  return std::nullopt;
}

void remove_nodes(const std::vector<std::string>& names, plan::Cluster& cluster) {
  std::set<int> gone;  // indices of removed nodes; the remaining nodes keep their indices
  for (const std::string& name : names) {
    const std::optional<int> node = find_node(name, cluster, gone);
    if (!node) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("--without {}: unknown node", name),
          fmt::format("one of {}", node_names(cluster)));
    }
    if (!gone.insert(*node).second) {
      throw Error(
          ErrorKind::kConfig,
          fmt::format("--without {}: node{} is given twice", name, *node),
          "name each node once");
    }
  }
  int before = 0;
  for (plan::NodeGroup& group : cluster.groups) {
    const int nodes = group.nodes;
    group.nodes -=
        static_cast<int>(std::distance(gone.lower_bound(before), gone.lower_bound(before + nodes)));
    before += nodes;
  }
  std::erase_if(cluster.groups, [](const plan::NodeGroup& group) { return group.nodes == 0; });
}

// Returns the product of the configured sizes. parallel.data counts as one if it is not set.
int64_t asked_devices(const config::Config& config) {
  const config::ParallelSection& parallel = config.parallel;
  return parallel.tensor * parallel.pipeline * parallel.context * parallel.data.value_or(1);
}

// Returns the number of devices if all sizes of the plan are set, otherwise a default.
int64_t usual_devices(const config::Resolution& resolution) {
  constexpr int64_t kUsual = 8;
  constexpr std::array kSizes{
      "parallel.data", "parallel.tensor", "parallel.pipeline", "parallel.context"};
  const bool all_given = std::ranges::all_of(
      kSizes, [&](const char* key) { return resolution.origins.count(key) != 0; });
  return all_given ? asked_devices(resolution.config) : kUsual;
}

plan::Cluster cluster_of(const config::Resolution& resolution) {
  constexpr int64_t kMostDevices = 1000000;
  const bool has_devices = resolution.has("gpus") || resolution.has("gpu");
  if (resolution.has("cluster") && has_devices) {
    throw Error(
        ErrorKind::kConfig,
        "--cluster cannot be combined with --gpu or --gpus",
        "give the devices in the file, or with --add 8xh100-80gb");
  }
  const int64_t devices = resolution.integer("gpus", 1).value_or(usual_devices(resolution));
  if (devices > kMostDevices) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--gpus {} exceeds one million", devices),
        "at most 1000000");
  }
  plan::Cluster cluster =
      resolution.has("cluster")
          ? plan::read_cluster(*resolution.value("cluster"))
          : plan::uniform_cluster(
                plan::find_device(resolution.value("gpu").value_or("h100-80gb")),
                static_cast<int>(devices));
  const auto every = [&](const char* flag) {
    const auto found = resolution.flags.find(flag);
    return found == resolution.flags.end() ? std::vector<std::string>{} : found->second;
  };
  remove_nodes(every("without"), cluster);
  for (const std::string& node : every("add")) {
    add_node(node, cluster);
  }
  if (cluster.devices() == 0) {
    throw Error(ErrorKind::kConfig, "no device is left", "add some: --add 8xh100-80gb");
  }
  return cluster;
}

// Returns the requested global batch. If it is not set, computes it from the micro-batch keys if
// both are set; otherwise starts with one step of all devices and doubles it until it is at least
// 512.
int64_t global_batch_of(const config::Resolution& resolution, const plan::SearchRequest& request) {
  constexpr int64_t kUsual = 512;
  if (const std::optional<int64_t> asked = resolution.integer("global-batch", 1)) {
    return *asked;
  }
  const int64_t micro_batch = request.micro_batch.value_or(1);
  const int64_t micro_batches = request.micro_batches.value_or(1);
  const int64_t devices = request.cluster.devices();
  if (request.micro_batch && request.micro_batches) {
    const int64_t others = static_cast<int64_t>(request.tensor.value_or(1)) *
                           request.pipeline.value_or(1) * request.context.value_or(1);
    return micro_batch * micro_batches *
           request.data.value_or(static_cast<int>(std::max<int64_t>(1, devices / others)));
  }
  int64_t batch = devices * micro_batch * micro_batches;
  while (batch < kUsual) {
    batch *= 2;
  }
  return batch;
}

plan::SearchRequest request_of(const config::Resolution& resolution) {
  config::Config config = resolution.config;
  const auto is_given = [&](const char* key) { return resolution.origins.count(key) != 0; };
  if (!is_given("training.bf16") && !config.training.fp16) {
    config.training.bf16 = true;
  }
  plan::SearchRequest request;
  request.cluster = cluster_of(resolution);
  const plan::NodeGroup& node = request.cluster.slowest();
  const plan::Job asked = plan::planned_job(
      config, plan::planned_model(config), asked_devices(config), node.devices_per_node);
  request.base = asked;
  request.base.split.clear();
  if (node.device.is_cpu) {
    plan::run_on_cpu(request.base.software, config.training);
  }
  const auto given = [&](const char* key, const auto& value) {
    return is_given(key) ? std::optional(value) : std::nullopt;
  };
  request.data = given("parallel.data", asked.mesh.data);
  request.tensor = given("parallel.tensor", asked.mesh.tensor);
  request.pipeline = given("parallel.pipeline", asked.mesh.pipeline);
  request.context = given("parallel.context", asked.mesh.context);
  request.expert = given("parallel.expert", asked.expert_ranks);
  request.sequence_parallel = given("parallel.sequence_parallel", asked.sequence_parallel);
  request.zero_stage = given("parallel.zero_stage", asked.zero_stage);
  if (is_given("parallel.shard_ranks") && config.parallel.shard_ranks >= 0) {
    request.shard_ranks = static_cast<int>(config.parallel.shard_ranks);
  }
  if (is_given("parallel.recompute") || is_given("training.gradient_checkpointing")) {
    request.recompute = asked.recompute;
  }
  if (is_given("parallel.offload_optimizer.device") || is_given("parallel.offload_param.device")) {
    request.offload = asked.offload;
  }
  request.schedule = given("parallel.schedule", asked.schedule);
  request.virtual_stages = given("parallel.virtual_stages", asked.virtual_stages);
  request.split = asked.split;
  request.micro_batch = given("training.per_device_train_batch_size", asked.micro_batch);
  request.micro_batches =
      given("training.gradient_accumulation_steps", config.training.gradient_accumulation_steps);
  request.base.global_batch = global_batch_of(resolution, request);
  return request;
}

[[noreturn]] void nothing_goes(const plan::SearchResult& result) {
  std::string why = "no plan matches the given keys";
  for (const auto& [what, reason] : result.refused) {
    why += fmt::format("\n  {}: {}", what, reason);
  }
  throw Error(ErrorKind::kConfig, why, "give fewer keys of `parallel`, or another --global-batch");
}

[[noreturn]] void nothing_fits(
    const plan::SearchResult& result, const plan::SearchRequest& request) {
  if (result.considered == 0) {
    nothing_goes(result);
  }
  const plan::Device& device = request.cluster.slowest().device;
  const std::optional<plan::LargerCluster> larger = plan::find_larger_cluster(request);
  std::string nearest = larger ? fmt::format(
                                     "{} devices of {} would suffice: {}",
                                     larger->devices,
                                     device.name,
                                     plan::plan_line(larger->plan.job))
                               : "larger devices";
  if (result.smallest) {
    nearest += fmt::format(
        "; the closest plan on them is {}: {:.1f} GB per device and {:.1f} GB of host memory",
        plan::plan_line(result.smallest->job),
        result.smallest->memory.total() / 1e9,
        result.smallest->memory.host / 1e9);
  }
  throw Error(
      ErrorKind::kOutOfMemory,
      fmt::format(
          "none of {} plans fits {} devices of {:.1f} GB, with {:.1f} GB of host memory each",
          result.considered,
          request.cluster.devices(),
          plan::usable_bytes(device) / 1e9,
          device.host_bytes() / 1e9),
      nearest);
}

// Returns additional content of the written plan. If the model is a preset, the user may train
// another folder and must therefore name it.
plan::PlanFile file_of(const config::Config& config) {
  const std::vector<std::string> presets = model::preset_names();
  const std::string& path = config.model.path;
  const bool is_preset = std::find(presets.begin(), presets.end(), path) != presets.end();
  return {
      .model = is_preset ? "" : path,
      .half = config.training.fp16 ? "fp16" : "bf16",
      .optimizer_folder = config.parallel.offload_optimizer.path,
      .parameter_folder = config.parallel.offload_param.path,
      .float8 = plan::float8_of(config.precision)};
}

void write_files(
    const config::Resolution& resolution, const plan::Job& job, const plan::Cluster& cluster) {
  const auto write = [&](const char* flag, const std::string& text) {
    write_file_atomically(*resolution.value(flag), text, ErrorKind::kEnvironment);
    std::cout << "written: " << *resolution.value(flag) << "\n";
  };
  if (resolution.has("write")) {
    write("write", plan::plan_yaml(job, file_of(resolution.config)));
  }
  if (resolution.has("svg")) {
    write("svg", plan::plan_svg(job, cluster));
  }
  if (resolution.has("trace")) {
    write("trace", plan::plan_trace(job, cluster));
  }
}

void print_run(int64_t tokens, const plan::Candidate& plan, const plan::ErrorBars& bars) {
  const double steps = std::ceil(static_cast<double>(tokens) / plan.job.step_tokens());
  const double hours = steps * plan.step.step_seconds / 3600;
  const double kilowatt_hours = steps * plan.step.joules / 3.6e6;
  std::cout << fmt::format(
      "{} tokens: {:.0f} steps, {}, {} ({} both)\n",
      tokens,
      steps,
      hours < 48 ? fmt::format("{:.2f} hours", hours) : fmt::format("{:.2f} days", hours / 24),
      kilowatt_hours < 1e4 ? fmt::format("{:.2f} kWh", kilowatt_hours)
                           : fmt::format("{:.2f} MWh", kilowatt_hours / 1e3),
      plan::text_of(bars));
}

}  // namespace

int run_plan(std::vector<std::string> arguments) {
  const config::Resolution resolution = config::resolve(arguments, plan_options());
  if (resolution.help) {
    return print_help(plan_options(), resolution, arguments);
  }
  const std::optional<int64_t> tokens = resolution.integer("tokens", 1);
  const plan::SearchRequest request = request_of(resolution);
  plan::check_float8(request.base, request.cluster);
  const plan::SearchResult result = plan::search(request);
  if (result.best.empty()) {
    nothing_fits(result, request);
  }
  std::cout << plan::search_table(result, request);
  const plan::Candidate& best = result.best.front();
  if (resolution.has("explain")) {
    std::cout << "\n" << plan::explain(best.job, request.cluster);
  }
  if (tokens) {
    print_run(*tokens, best, plan::time_error_bars(request.cluster));
  }
  write_files(resolution, best.job, request.cluster);
  return 0;
}

}  // namespace lockstep::start
