// Converts the options of the deepspeed launcher to a launch plan.
#include "launch/frontends/deepspeed.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "base/redact.h"
#include "base/text.h"
#include "launch/frontends/transports.h"
#include "launch/plan/cluster.h"
#include "launch/plan/devices.h"
#include "launch/plan/plan_parts.h"
#include "launch/plan/program.h"
#include "launch/plan/shell_words.h"
#include "launch/system/secret.h"

namespace lockstep::launch {
namespace {

constexpr int kMostDeepspeedSlots = 1024;

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// Returns the hosts of the hostfile after filters and counts. Empty if the job runs only on this
// machine.
std::vector<HostSlots> remote_hosts(Options& options) {
  const std::string& path = options.text("hostfile");
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    if (options.given("hostfile")) {
      options.warning(fmt::format("hostfile {} does not exist; using this machine only", path));
    }
    return {};
  }
  std::vector<HostSlots> hosts = filter_hosts(
      parse_hostfile(read_file(path, ErrorKind::kConfig, kLongestJson), path),
      options.text("include"),
      options.text("exclude"));
  const int nodes = static_cast<int>(options.integer("num-nodes", -1));
  if (nodes > 0) {
    if (static_cast<size_t>(nodes) > hosts.size()) {
      options.problem(
          fmt::format("--num_nodes {} exceeds the {} hosts of the hostfile", nodes, hosts.size()));
      return hosts;
    }
    hosts.resize(static_cast<size_t>(nodes));
  }
  return hosts;
}

int gpu_count(Options& options) {
  const int gpus = static_cast<int>(options.integer("num-gpus", -1));
  return gpus > 0 ? gpus : static_cast<int>(options.integer("num-accelerators", -1));
}

void limit_slots(Options& options, std::vector<HostSlots>& hosts) {
  const int gpus = gpu_count(options);
  if (gpus > 0) {
    for (HostSlots& host : hosts) {
      host.slots.clear();
      for (int slot = 0; slot < gpus; ++slot) {
        host.slots.push_back(slot);
      }
    }
  }
}

// Returns this machine's GPUs as slots. CUDA_VISIBLE_DEVICES acts as --include unless slots are
// selected otherwise.
HostSlots local_host(Options& options, const Environment& environment) {
  const std::string& include = options.text("include");
  const std::string& exclude = options.text("exclude");
  const int wanted = gpu_count(options);
  const int installed = static_cast<int>(installed_gpus().size());
  HostSlots all{"localhost", {}};
  // Without GPUs, a slot is a worker. --include then determines the number of workers.
  const bool names_slots = installed == 0 && !include.empty();
  const int slots = names_slots ? kMostDeepspeedSlots : std::max({1, wanted, installed});
  for (int slot = 0; slot < slots; ++slot) {
    all.slots.push_back(slot);
  }
  if (!include.empty() || !exclude.empty()) {
    return filter_hosts({all}, include, exclude).front();
  }
  if (wanted > 0) {
    all.slots.resize(static_cast<size_t>(wanted));
    return all;
  }
  const auto visible = visible_devices(environment);
  if (visible && installed > 0) {
    all.slots.clear();
    for (const std::string& entry : *visible) {
      const std::vector<int> index = parse_cpu_list(entry);
      if (index.size() != 1) {
        options.problem(fmt::format(
            "CUDA_VISIBLE_DEVICES entry '{}' is not a number; use numbers, or --include "
            "localhost:0,1",
            entry));
        return all;
      }
      all.slots.push_back(index[0]);
    }
  }
  return all;
}

void bind_cores(Options& options, LaunchPlan& plan) {
  if (!options.flag("bind-cores-to-rank") && options.text("bind-core-list").empty()) {
    return;
  }
  std::vector<int> cores = parse_cpu_list(options.text("bind-core-list"));
  if (!options.text("bind-core-list").empty() && cores.empty()) {
    options.problem(fmt::format(
        "--bind_core_list {}: not a list such as 0-7,16", options.text("bind-core-list")));
    return;
  }
  for (int core = 0; cores.empty() && core < usable_cores(); ++core) {
    cores.push_back(core);
  }
  const size_t share = cores.size() / static_cast<size_t>(plan.workers);
  if (share == 0) {
    options.problem(fmt::format("{} cores are too few for {} workers", cores.size(), plan.workers));
    return;
  }
  for (int worker = 0; worker < plan.workers; ++worker) {
    const auto begin =
        cores.begin() + static_cast<std::ptrdiff_t>(share * static_cast<size_t>(worker));
    plan.cpus.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(share));
  }
  plan.environment["OMP_NUM_THREADS"] = std::to_string(share);
}

// Implements --elastic_training of older versions: the job continues with the remaining nodes.
void plan_elasticity(Options& options, int node, LaunchPlan& plan) {
  if (!options.flag("elastic-training")) {
    return;
  }
  constexpr int kRestarts = 100;
  const int least = static_cast<int>(options.integer("min-elastic-nodes", -1));
  const int most = static_cast<int>(options.integer("max-elastic-nodes", -1));
  plan.min_nodes = least > 0 ? least : 1;
  plan.max_nodes = most > 0 ? most : plan.max_nodes;
  plan.restarts.most = kRestarts;
  plan.rendezvous.kind = RendezvousPoint::Kind::kDynamic;
  plan.rendezvous.is_host = node == 0;
  plan.rendezvous.node_rank = -1;
  if (plan.min_nodes > plan.max_nodes) {
    options.problem(fmt::format(
        "--min_elastic_nodes {} exceeds --max_elastic_nodes {}", plan.min_nodes, plan.max_nodes));
  }
}

// Makes the plan of one machine, number `node` of `hosts`.
void plan_node(
    Options& options,
    const Environment& environment,
    const std::vector<HostSlots>& hosts,
    int node,
    LaunchPlan& plan) {
  const HostSlots& host = hosts[static_cast<size_t>(node)];
  plan.workers = static_cast<int>(host.slots.size());
  plan.min_nodes = plan.max_nodes = static_cast<int>(hosts.size());
  plan.deepspeed_environment = true;
  if (!installed_gpus().empty()) {
    plan.environment["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(host.slots, ","));
  }
  const int port = static_cast<int>(options.integer("master-port", 1));
  const std::string& address = options.text("master-addr");
  if (hosts.size() > 1) {
    plan.rendezvous.kind = RendezvousPoint::Kind::kStatic;
    plan.rendezvous.host = address.empty() ? hosts.front().host : address;
    plan.rendezvous.port = port;
    plan.rendezvous.node_rank = node;
    plan_elasticity(options, node, plan);
  } else if (options.given("master-port")) {
    plan.rendezvous.store_port = port;
  }
  plan.local_rank_argument = options.flag("no-local-rank") ? "" : "--local_rank={}";
  plan.log.rank_log_folder = options.text("enable-each-rank-log");
  plan.propagate_exit_code = true;
  plan.run_id = hosts.size() > 1 ? fmt::format("deepspeed-{}", port) : random_id();
  plan.signals = signals_for(options, "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
  plan_secret(options, environment, plan.rendezvous);
  plan.watch_stdin = options.flag("watch-stdin");
  bind_cores(options, plan);
  const Program program = worker_program(
      options.rest(), {options.flag("module"), options.flag("no-python")}, environment);
  plan.argv = program.argv;
  plan.name = program.name;
  plan.argument_at = program.argument_at;
  if (program.ours) {
    plan.local_rank_argument.clear();
  }
}

bool is_variable_name(const std::string& text) {
  return !text.empty() && !is_digit(text[0]) && std::all_of(text.begin(), text.end(), [](char c) {
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

// Variables exported to other machines: those of NCCL, Python and UCX.
Environment exported_variables(const Environment& environment, const Environment& more) {
  Environment result = more;
  for (const auto& [name, value] : environment) {
    for (const char* prefix : {"NCCL", "PYTHON", "MLFLOW", "MV2", "UCX", "LOCKSTEP_LOG"}) {
      if (name.starts_with(prefix)) {
        result[name] = value;
      }
    }
  }
  // Make Python modules in the current folder importable on every host.
  std::error_code ignored;
  const std::string folder = std::filesystem::current_path(ignored).string();
  const std::string path = value_of(environment, "PYTHONPATH");
  result["PYTHONPATH"] = path.empty() ? folder : folder + ":" + path;
  return result;
}

// Variables of .deepspeed_env, which are exported as well. They may be secrets.
Environment file_variables(const Environment& environment) {
  Environment result;
  std::error_code ignored;
  const std::string chosen = value_of(environment, "DS_ENV_FILE");
  const std::string name = chosen.empty() ? ".deepspeed_env" : chosen;
  for (const std::filesystem::path& folder :
       {std::filesystem::path(value_of(environment, "HOME")),
        std::filesystem::current_path(ignored)}) {
    const auto path = folder / name;
    if (std::filesystem::is_regular_file(path, ignored)) {
      for (const auto& [key, value] : parse_environment_file(
               read_file(path, ErrorKind::kConfig, kLongestJson), path.string())) {
        result[key] = value;
      }
    }
  }
  return result;
}

// Returns the transport that can be used. pdsh passes variables in arguments only, which every user
// of a machine can list.
std::string usable_transport(
    const Options& options,
    const Environment& environment,
    const RemoteJob& job,
    bool has_secrets) {
  const std::string transport = lower_case(options.text("launcher"));
  if (transport != "pdsh") {
    return transport;
  }
  if (find_in_path("pdsh", environment).empty()) {
    log_info("pdsh is not installed; using ssh");
    return "ssh";
  }
  if (has_secrets && !job.transport_arguments.empty()) {
    throw Error(
        ErrorKind::kConfig,
        "--launcher pdsh would show the variables of .deepspeed_env, or variables whose names are "
        "those of secrets, in argument lists",
        "use --launcher ssh with --launcher_args for ssh, or set the variables on all hosts");
  }
  if (has_secrets) {
    log_info("pdsh passes variables in arguments, which every user can list; using ssh");
    return "ssh";
  }
  if (!job.secret.empty() && job.transport_arguments.empty()) {
    log_info(
        "pdsh cannot pass a secret to the agents; using ssh (to use pdsh, pass "
        "--rdzv-secret-file FILE with mode 0600 on all hosts)");
    return "ssh";
  }
  return transport;
}

std::vector<DeepspeedRequest::Command> start_remotely(
    Options& options,
    const Environment& environment,
    const Environment& exported,
    const std::vector<HostSlots>& hosts) {
  RemoteJob job;
  job.hosts = hosts;
  job.exported = exported_variables(environment, exported);
  bool has_secrets = false;
  for (const auto& [name, value] : file_variables(environment)) {
    job.exported[name] = value;
    has_secrets = true;
  }
  // Names become part of a remote shell command, so they must be valid identifiers.
  std::erase_if(job.exported, [](const auto& entry) { return !is_variable_name(entry.first); });
  has_secrets = has_secrets || std::ranges::any_of(job.exported, [](const auto& entry) {
                  return is_secret_name(entry.first);
                });
  job.folder = std::filesystem::current_path().string();
  job.transport_arguments = shell_split(options.text("launcher-args"));
  job.ssh_port = options.text("ssh-port");
  job.prepare = options.text("venv-script");
  job.before = {
      own_path(),
      "launch",
      "--compat",
      "deepspeed",
      "--world_info=" + encode_world(hosts),
      "--master_port=" + options.text("master-port")};
  if (!options.text("master-addr").empty()) {
    job.before.push_back("--master_addr=" + options.text("master-addr"));
  }
  for (const char* flag :
       {"rdzv-insecure",
        "module",
        "no-python",
        "no-local-rank",
        "bind-cores-to-rank",
        "elastic-training",
        "quiet"}) {
    if (options.flag(flag)) {
      job.before.push_back(std::string("--") + flag);
    }
  }
  for (const char* value :
       {"enable-each-rank-log",
        "bind-core-list",
        "rdzv-secret-file",
        "min-elastic-nodes",
        "max-elastic-nodes",
        "log-level"}) {
    if (options.given(value)) {
      job.before.push_back(fmt::format("--{}={}", value, options.text(value)));
    }
  }
  job.after = options.rest();
  if (options.text("rdzv-secret-file").empty() && !options.flag("rdzv-insecure")) {
    job.secret = random_hex();
  }
  return remote_commands(usable_transport(options, environment, job, has_secrets), job);
}

LogLevel level_of(const Options& options) {
  static const std::map<std::string, LogLevel> levels{
      {"debug", LogLevel::kDebug},
      {"info", LogLevel::kInfo},
      {"warning", LogLevel::kWarning},
      {"error", LogLevel::kError},
      {"critical", LogLevel::kError}};
  return options.flag("quiet") ? LogLevel::kError : levels.at(options.text("log-level"));
}

void check_deepspeed_options(Options& options) {
  if (options.integer("num-nodes", -1) == 0 || options.integer("num-gpus", -1) == 0) {
    options.problem("--num_nodes and --num_gpus must be at least 1");
  }
  const bool filters = !options.text("include").empty() || !options.text("exclude").empty();
  if (filters && (options.integer("num-nodes", -1) > 0 || gpu_count(options) > 0)) {
    options.problem("--include and --exclude cannot be combined with --num_nodes and --num_gpus");
  }
  if (!options.text("include").empty() && !options.text("exclude").empty()) {
    options.problem("--include and --exclude are mutually exclusive");
  }
  static const std::vector<std::string> transports{
      "pdsh", "ssh", "openmpi", "mvapich", "slurm", "mpich", "impi"};
  const std::string transport = lower_case(options.text("launcher"));
  if (std::find(transports.begin(), transports.end(), transport) == transports.end()) {
    options.problem(
        fmt::format("--launcher {}: must be one of {}", transport, fmt::join(transports, ", ")));
  }
  if (!options.text("autotuning").empty()) {
    options.problem(
        "--autotuning is not supported; `lockstep plan --apply` searches for the best plan");
  }
  if (options.flag("module") && options.flag("no-python")) {
    options.problem("--module and --no_python are mutually exclusive");
  }
}

// Adds the environment that ssh passes on stdin to this process and its workers.
void take_from_launcher(Environment& environment) {
  HandedOver handed = HandedOver::read(STDIN_FILENO);
  if (!handed.secret.empty()) {
    handed.environment[kSecretVariable] = handed.secret;
  }
  for (const auto& [name, value] : handed.environment) {
    ::setenv(name.c_str(), value.c_str(), /*replace=*/1);
    environment[name] = value;
  }
}

}  // namespace

DeepspeedRequest plan_deepspeed(
    const std::vector<std::string>& arguments,
    const Environment& given_environment,
    const Environment& exported) {
  const OptionRules rules = deepspeed_rules();
  Environment environment = given_environment;
  Options options = parse_options(deepspeed_options(), rules, arguments, environment);
  check_deepspeed_options(options);
  options.finish(rules);
  if (options.flag("read-stdin")) {
    take_from_launcher(environment);
  }
  DeepspeedRequest request;
  request.plan.environment = exported;
  std::vector<HostSlots> hosts;
  int node = static_cast<int>(options.integer("node-rank", -1));
  if (!options.text("world-info").empty()) {
    hosts = decode_world(options.text("world-info"));
    const auto place = find_cluster(environment);
    node = node < 0 && place ? place->node : node;
  } else {
    hosts = remote_hosts(options);
    limit_slots(options, hosts);
    if (!hosts.empty() && !options.flag("no-ssh") &&
        (hosts.size() > 1 || options.flag("force-multi"))) {
      options.finish(rules);
      request.commands = start_remotely(options, environment, exported, hosts);
      return request;
    }
    if (hosts.size() == 1 || hosts.empty()) {
      hosts = hosts.empty() ? std::vector<HostSlots>{local_host(options, environment)} : hosts;
      node = 0;
    }
  }
  if (node < 0 || static_cast<size_t>(node) >= hosts.size()) {
    options.problem(fmt::format("--node_rank {} is out of range for {} hosts", node, hosts.size()));
    node = 0;
  }
  options.finish(rules);
  plan_node(options, environment, hosts, node, request.plan);
  options.finish(rules);
  if (options.flag("save-pid")) {
    request.plan.pid_file = true;
  }
  for (const std::string& warning : options.warnings()) {
    request.plan.notes.push_back("warning: " + warning);
  }
  request.plan.log_level = level_of(options);
  return request;
}

}  // namespace lockstep::launch
