// Converts the options of accelerate launch to a launch plan.
#include "launch/frontends/accelerate.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "launch/frontends/accelerate_file.h"
#include "launch/plan/devices.h"
#include "launch/plan/plan_parts.h"
#include "launch/plan/program.h"
#include "launch/system/network.h"

namespace lockstep::launch {
namespace {

constexpr int kDefaultPort = 29500;

std::string upper(std::string text) {
  for (char& letter : text) {
    letter =
        letter == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  }
  return text;
}

// Passes every option of a group to the workers, as the environment variable PREFIX + its name in
// capitals.
void forward_group(
    const Options& options,
    const std::string& group,
    const std::string& prefix,
    Environment& environment) {
  for (const OptionSpec& option : accelerate_options()) {
    const std::string name = option.name;
    if (!name.starts_with(group) || options.text(name).empty()) {
      continue;
    }
    const std::string& value = options.text(name);
    const bool truth = lower_case(value) == "true" || lower_case(value) == "false";
    environment[prefix + upper(name)] = truth ? lower_case(value) : value;
  }
}

void forward_deepspeed(
    const Options& options, const AccelerateFile& file, Environment& environment) {
  environment["ACCELERATE_USE_DEEPSPEED"] = "true";
  environment["ACCELERATE_CONFIG_DS_FIELDS"] =
      fmt::format("{}", fmt::join(file.deepspeed_fields, ","));
  const std::string& json = options.text("deepspeed-config-file");
  const auto or_else = [&](const char* name, const char* otherwise) {
    const std::string& text = options.text(name);
    return text.empty() ? std::string(otherwise) : text;
  };
  const std::string ds = "ACCELERATE_DEEPSPEED_";
  if (!json.empty()) {
    environment[ds + "CONFIG_FILE"] = json;
  } else {
    environment[ds + "ZERO_STAGE"] = or_else("zero-stage", "2");
    environment[ds + "OFFLOAD_OPTIMIZER_DEVICE"] = or_else("offload-optimizer-device", "none");
    environment[ds + "OFFLOAD_PARAM_DEVICE"] = or_else("offload-param-device", "none");
    environment[ds + "ZERO3_INIT"] = lower_case(or_else("zero3-init-flag", "true"));
    environment[ds + "ZERO3_SAVE_16BIT_MODEL"] =
        lower_case(or_else("zero3-save-16bit-model", "false"));
    environment["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] =
        or_else("gradient-accumulation-steps", "1");
    environment["ACCELERATE_GRADIENT_CLIPPING"] = or_else("gradient-clipping", "1.0");
    for (const char* name : {"offload-optimizer-nvme-path", "offload-param-nvme-path"}) {
      if (!options.text(name).empty()) {
        environment[ds + upper(name)] = options.text(name);
      }
    }
  }
  if (!options.text("deepspeed-moe-layer-cls-names").empty()) {
    environment[ds + "MOE_LAYER_CLS_NAMES"] = options.text("deepspeed-moe-layer-cls-names");
  }
}

Environment worker_variables(const Options& options, const AccelerateFile& file) {
  Environment result;
  const std::string& precision = options.text("mixed-precision");
  result["ACCELERATE_MIXED_PRECISION"] = precision.empty() ? "no" : precision;
  result["ACCELERATE_USE_CPU"] = options.flag("cpu") ? "True" : "False";
  forward_group(options, "dynamo-", "ACCELERATE_", result);
  for (const char* name :
       {"dynamo-use-fullgraph", "dynamo-use-dynamic", "dynamo-use-regional-compilation"}) {
    result["ACCELERATE_" + upper(name)] = options.flag(name) ? "True" : "False";
  }
  result["ACCELERATE_DYNAMO_BACKEND"] = upper(options.text("dynamo-backend"));
  if (options.flag("debug")) {
    result["ACCELERATE_DEBUG_MODE"] = "true";
  }
  if (options.flag("enable-cpu-affinity")) {
    result["ACCELERATE_CPU_AFFINITY"] = "1";
  }
  if (precision == "fp8") {
    forward_group(options, "fp8-", "ACCELERATE_", result);
  }
  if (options.flag("use-deepspeed")) {
    forward_deepspeed(options, file, result);
  }
  if (options.flag("use-fsdp")) {
    result["ACCELERATE_USE_FSDP"] = "true";
    forward_group(options, "fsdp-", "", result);
    const auto layers = result.find("FSDP_TRANSFORMER_LAYER_CLS_TO_WRAP");
    if (layers != result.end()) {
      result["FSDP_TRANSFORMER_CLS_TO_WRAP"] = layers->second;
      result.erase(layers);
    }
  }
  if (options.flag("use-megatron-lm")) {
    result["ACCELERATE_USE_MEGATRON_LM"] = "true";
    forward_group(options, "megatron-lm-", "", result);
  }
  if (options.flag("use-parallelism-config")) {
    result["ACCELERATE_USE_PARALLELISM_CONFIG"] = "true";
    forward_group(options, "parallelism-config-", "", result);
  }
  const std::string& gpus = options.text("gpu-ids");
  if (!gpus.empty() && gpus != "all") {
    result["CUDA_VISIBLE_DEVICES"] = gpus;
  }
  if (!options.text("num-cpu-threads-per-process").empty()) {
    result["OMP_NUM_THREADS"] = options.text("num-cpu-threads-per-process");
  }
  return result;
}

void check_options(Options& options) {
  std::vector<std::string> kinds;
  for (const char* kind : {"cpu", "multi-gpu", "tpu", "use-deepspeed", "use-fsdp"}) {
    if (options.given(kind)) {
      kinds.push_back(std::string("--") + kind);
    }
  }
  if (kinds.size() > 1) {
    options.problem(fmt::format("{} are mutually exclusive", fmt::join(kinds, ", ")));
  }
  for (const char* name :
       {"tpu",
        "tpu-use-cluster",
        "tpu-use-sudo",
        "vm",
        "env",
        "aws-access-key-id",
        "aws-secret-access-key",
        "main-training-function",
        "downcast-bf16"}) {
    if (options.given(name)) {
      options.problem(
          fmt::format("--{} is not supported: this launcher starts CPU and GPU jobs", name));
    }
  }
  if (options.given("use-parallelism-config") &&
      !(options.flag("use-fsdp") && options.text("fsdp-version") == "2")) {
    options.problem("--use-parallelism-config requires --use-fsdp and --fsdp-version 2");
  }
  if (options.flag("use-fsdp") && is_truth_word(options.text("fsdp-cpu-ram-efficient-loading")) &&
      !is_truth_word(options.text("fsdp-sync-module-states"))) {
    options.problem("--fsdp-cpu-ram-efficient-loading requires --fsdp-sync-module-states");
  }
  if (options.flag("module") && options.flag("no-python")) {
    options.problem("--module and --no-python are mutually exclusive");
  }
  if (options.seconds("monitor-interval", 0) <= 0) {
    options.problem("--monitor-interval must be greater than 0");
  }
  if (!options.text("num-cpu-threads-per-process").empty()) {
    options.integer("num-cpu-threads-per-process", 1);
  }
}

void count_workers(
    Options& options,
    const AccelerateFile& file,
    const Environment& environment,
    LaunchPlan& plan) {
  Environment seen = environment;
  const std::string& ids = options.text("gpu-ids");
  if (!ids.empty() && ids != "all") {
    seen["CUDA_VISIBLE_DEVICES"] = ids;
  }
  const int gpus = options.flag("cpu") ? 0 : static_cast<int>(usable_gpus(seen).size());
  const int machines = static_cast<int>(options.integer("num-machines", 1));
  int total = file.distributed_type == "NO" ? 1 : std::max(1, gpus) * machines;
  const std::string& wanted = options.text("num-processes");
  if (!wanted.empty() && wanted != "-1") {
    total = static_cast<int>(options.integer("num-processes", 1));
  } else if (wanted == "-1") {
    options.problem("num_processes is -1 in the configuration file; use --num_processes");
  } else if (file.distributed_type.empty()) {
    plan.notes.push_back(fmt::format(
        "no configuration file; using num_processes={}, num_machines={}, mixed_precision={}",
        total,
        machines,
        options.text("mixed-precision").empty() ? "no" : options.text("mixed-precision")));
  }
  if (options.given("multi-gpu") && total < 2) {
    options.problem("--multi-gpu requires --num-processes of at least 2");
  }
  if (total % machines != 0) {
    options.problem(
        fmt::format("--num-processes {} is not divisible by {} machines", total, machines));
  }
  plan.workers = std::max(1, total / machines);
  plan.min_nodes = plan.max_nodes = machines;
  plan.plain = total == 1;
}

void plan_accelerate_rendezvous(Options& options, LaunchPlan& plan) {
  RendezvousPoint& rendezvous = plan.rendezvous;
  const bool has_port =
      options.set("main-process-port") && !options.text("main-process-port").empty();
  const int port =
      has_port ? static_cast<int>(options.integer("main-process-port", 0)) : kDefaultPort;
  apply_rendezvous_conf(options, options.text("rdzv-conf"), rendezvous);
  if (plan.max_nodes == 1) {
    if (has_port && port != 0) {
      try {
        listen_on("127.0.0.1", port);
        rendezvous.store_port = port;
      } catch (const Error& error) {
        plan.notes.push_back(fmt::format("warning: {}; using a free port", error.message()));
      }
    }
    return;
  }
  rendezvous.host = options.text("main-process-ip");
  rendezvous.port = port;
  rendezvous.node_rank = static_cast<int>(options.integer("machine-rank", 0));
  if (rendezvous.host.empty()) {
    options.problem("several machines require --main-process-ip");
  }
  if (rendezvous.node_rank >= plan.max_nodes) {
    options.problem(fmt::format(
        "--machine-rank {} is out of range for {} machines", rendezvous.node_rank, plan.max_nodes));
  }
  const bool dynamic = options.text("rdzv-backend") == "c10d";
  rendezvous.kind = dynamic ? RendezvousPoint::Kind::kDynamic : RendezvousPoint::Kind::kStatic;
}

// Returns the arguments of the deepspeed front end, which starts the nodes if the configuration
// names a transport and a hostfile, or mpirun's hostfile.
std::vector<std::string> deepspeed_words(const Options& options, const LaunchPlan& plan) {
  const std::string& mpi_hosts = options.text("mpirun-hostfile");
  const bool with_mpi = !mpi_hosts.empty();
  const std::string transport = with_mpi ? "openmpi" : options.text("deepspeed-multinode-launcher");
  const std::string& hosts = with_mpi ? mpi_hosts : options.text("deepspeed-hostfile");
  if ((!options.flag("use-deepspeed") && !with_mpi) || plan.max_nodes == 1 ||
      transport == "standard" || hosts.empty()) {
    return {};
  }
  std::vector<std::string> words{
      "--hostfile",
      hosts,
      "--no_local_rank",
      fmt::format("--num_gpus={}", plan.workers),
      fmt::format("--master_port={}", plan.rendezvous.port)};
  if (transport == "nossh") {
    words.insert(
        words.end(), {"--no_ssh", fmt::format("--node_rank={}", plan.rendezvous.node_rank)});
  } else {
    words.insert(words.end(), {"--launcher", transport});
  }
  if (!plan.rendezvous.host.empty()) {
    words.insert(words.end(), {"--master_addr", plan.rendezvous.host});
  }
  for (const auto& [option, word] :
       {std::pair("deepspeed-inclusion-filter", "--include"),
        std::pair("deepspeed-exclusion-filter", "--exclude")}) {
    if (!options.text(option).empty()) {
      words.insert(words.end(), {word, options.text(option)});
      std::erase_if(words, [](const std::string& one) { return one.starts_with("--num_gpus"); });
    }
  }
  for (const char* flag : {"module", "no-python", "rdzv-insecure"}) {
    if (options.flag(flag)) {
      words.push_back(std::string("--") + flag);
    }
  }
  if (!options.text("rdzv-secret-file").empty()) {
    words.push_back("--rdzv-secret-file=" + options.text("rdzv-secret-file"));
  }
  words.insert(words.end(), options.rest().begin(), options.rest().end());
  return words;
}

}  // namespace

std::string default_accelerate_config(const Environment& environment) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  std::filesystem::path home = value("HF_HOME");
  if (home.empty()) {
    const std::string cache = value("XDG_CACHE_HOME");
    home = (cache.empty() ? std::filesystem::path(value("HOME")) / ".cache"
                          : std::filesystem::path(cache)) /
           "huggingface";
  }
  std::error_code ignored;
  for (const char* name : {"default_config.yaml", "default_config.json"}) {
    const auto path = home / "accelerate" / name;
    if (std::filesystem::exists(path, ignored)) {
      return path.string();
    }
  }
  return "";
}

AccelerateRequest plan_accelerate(
    const std::vector<std::string>& arguments, const Environment& environment) {
  const OptionRules rules = accelerate_rules();
  Options options = parse_options(accelerate_options(), rules, arguments, environment);
  AccelerateFile file;
  const std::string path = options.given("config-file") ? options.text("config-file")
                                                        : default_accelerate_config(environment);
  if (!path.empty()) {
    file = read_accelerate_file(path, options);
  }
  check_options(options);
  AccelerateRequest request;
  LaunchPlan& plan = request.plan;
  count_workers(options, file, environment, plan);
  plan_accelerate_rendezvous(options, plan);
  plan_secret(options, environment, plan.rendezvous);
  plan.role = options.text("role");
  plan.restarts.most = static_cast<int>(options.integer("max-restarts", 0));
  plan.log.folder = options.text("log-dir");
  plan.log.tee = StdSpec::parse(options.text("tee"), "tee");
  plan.signals = signals_for(options, "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
  plan.run_id = plan.max_nodes == 1 ? random_id() : "none";
  plan.numa_binding = options.flag("enable-cpu-affinity") ? "node" : "";
  if (options.text("dynamo-backend") != "no") {
    plan.notes.emplace_back(
        "dynamo options have no effect on `lockstep train`; they are passed to the workers");
  }
  options.finish(rules);
  plan.environment = worker_variables(options, file);
  request.deepspeed = deepspeed_words(options, plan);
  const Program program = worker_program(
      options.rest(), {options.flag("module"), options.flag("no-python")}, environment);
  plan.argv = program.argv;
  plan.name = program.name;
  plan.argument_at = program.argument_at;
  plan.propagate_exit_code = program.ours;
  if (options.flag("quiet")) {
    plan.log_level = LogLevel::kWarning;
  }
  return request;
}

}  // namespace lockstep::launch
