// Converts torchrun's options to a launch plan.
#include "launch/frontends/torchrun.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/format.h"
#include "launch/plan/plan_parts.h"
#include "launch/plan/program.h"

namespace lockstep::launch {
namespace {

constexpr int kStaticPort = 29500, kDynamicPort = 29400;

constexpr OptionSpec kTorchrunOptions[] = {
    {"nnodes", kValue, "1:1", "number of nodes, or MIN:MAX"},
    {"nproc-per-node", kValue, "1", "number of workers per node, or auto, gpu, cpu"},
    {"rdzv-backend", kValue, "static", "rendezvous backend: static or c10d"},
    {"rdzv-endpoint", kValue, "", "rendezvous endpoint: HOST[:PORT]"},
    {"rdzv-id", kValue, "none", "job id, the same on all nodes"},
    {"rdzv-conf", kValue, "", "rendezvous settings: key=value,..."},
    {"rdzv-secret-file",
     kValue,
     "",
     "file of mode 0600 with the secret shared by all nodes; agents without it are refused"},
    {"rdzv-insecure",
     kFlag,
     "",
     "allow a rendezvous without a secret: any process that reaches the address can join"},
    {"standalone", kFlag, "", "single node with a free port and a random id"},
    {"max-restarts", kValue, "0", "maximum number of restarts after failures"},
    {"restart-window",
     kValue,
     "0",
     "period in seconds to which --max-restarts applies; 0: the whole job"},
    {"monitor-interval", kValue, "0.1", "accepted; the end of a worker is detected at once"},
    {"start-method",
     kValue,
     "spawn",
     "accepted; programs are always executed",
     0,
     "spawn|fork|forkserver"},
    {"event-log-handler", kValue, "null", "destination of events: null, console, jsonl:PATH"},
    {"role", kValue, "default", "role name of the workers"},
    {"module", kFlag, "", "run the program as a Python module", 'm'},
    {"no-python", kFlag, "", "run the program directly"},
    {"run-path", kFlag, "", "accepted; the program is run by python"},
    {"log-dir", kValue, "", "folder for log files; /dev/null for none"},
    {"redirects", kValue, "0", "streams written to files only: 0-3, or RANK:0-3,...", 'r'},
    {"tee", kValue, "0", "streams written to both files and the console", 't'},
    {"log-line-prefix-template",
     kValue,
     "",
     "template for the prefix of console lines: ${role_name} ${local_rank} ${rank} ${hostname}"},
    {"local-ranks-filter", kValue, "", "local ranks whose output is shown: 0,1,..."},
    {"duplicate-stdout-filters",
     kValue,
     "",
     "copy lines that contain any of these strings to filtered_stdout.log"},
    {"duplicate-stderr-filters",
     kValue,
     "",
     "copy lines that contain any of these strings to filtered_stderr.log"},
    {"node-rank", kValue, "0", "rank of this node, with the static backend"},
    {"master-addr", kValue, "127.0.0.1", "address of node 0, with the static backend"},
    {"master-port", kValue, "", "port of node 0 [29500]"},
    {"local-addr", kValue, "", "address of this node for the other nodes"},
    {"logs-specs", kValue, "", "not supported: name of a Python plug-in"},
    {"numa-binding",
     kValue,
     "",
     "bind workers to CPUs close to their GPU",
     0,
     "node|socket|exclusive|core-complex"},
    {"signals-to-handle",
     kValue,
     "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     "signals to forward to the workers"},
    {"shutdown-timeout",
     kValue,
     "",
     "seconds from a stop to SIGKILL [30 after a signal, 0.7 after a failure]"},
    {"virtual-local-rank", kFlag, "", "set LOCAL_RANK=0 and one visible GPU for every worker"},
    {"propagate-exit-code",
     kFlag,
     "",
     "exit with the failed worker's code (128 + N for signal N) instead of 1"},
    {"use-env", kFlag, "", "torch.distributed.launch only: do not pass --local-rank"},
    {"print-completion", kValue, "", "print a completion script", 0, "bash|zsh|tcsh"},
    {"compat",
     kValue,
     "",
     "parse the options as this launcher does",
     0,
     "torchrun|accelerate|deepspeed|torch.distributed.launch"},
    {"help", kFlag, "", "print this help", 'h'},
};

// Returns --node-rank, or the index of this pod in a Kubernetes Indexed Job or JobSet.
int node_rank_of(Options& options, const Environment& environment, int nodes) {
  const auto pod = environment.find("JOB_COMPLETION_INDEX");
  if (options.set("node-rank") || nodes < 2 || pod == environment.end()) {
    return static_cast<int>(options.integer("node-rank", 0));
  }
  int rank = 0;
  const std::string& text = pod->second;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (problem != std::errc() || end != text.data() + text.size() || rank < 0) {
    options.problem(fmt::format("JOB_COMPLETION_INDEX={}: not a pod index", text));
  }
  return rank;
}

// Adds a note if there are many workers without GPUs. Kubeflow's operator sets the number of
// workers to a pod's number of CPUs if the pod has no GPUs.
void note_workers_of_cpus(
    LaunchPlan& plan, const Options& options, const Environment& environment) {
  constexpr int kMany = 4;
  const bool is_pod = environment.contains("KUBERNETES_SERVICE_HOST");
  const auto told = environment.find("PET_NPROC_PER_NODE");
  const bool counted = told != environment.end() && options.text("nproc-per-node") == told->second;
  if (is_pod && counted && plan.workers >= kMany && usable_gpus(environment).empty()) {
    plan.notes.push_back(fmt::format(
        "starting {} ranks with few threads each, because this pod has no GPU and "
        "PET_NPROC_PER_NODE counts its CPUs; set `numProcPerNode: 1` in the runtime or "
        "--nproc-per-node 1 for one rank with all threads",
        plan.workers));
  }
}

void plan_torchrun_rendezvous(Options& options, const Environment& environment, LaunchPlan& plan) {
  std::string backend = options.text("rdzv-backend");
  const std::string& endpoint = options.text("rdzv-endpoint");
  if (backend != "static" && backend != "c10d") {
    options.problem(fmt::format(
        "--rdzv-backend {} is not supported; use static or c10d. c10d needs no external service: "
        "--rdzv-backend c10d --rdzv-endpoint HOST:PORT",
        backend));
    backend = "c10d";
  }
  RendezvousPoint& rendezvous = plan.rendezvous;
  apply_rendezvous_conf(options, options.text("rdzv-conf"), rendezvous);
  rendezvous.local_address = options.text("local-addr");
  rendezvous.node_rank = node_rank_of(options, environment, plan.max_nodes);
  const bool alone =
      backend == "static" && endpoint.empty() && !options.set("master-port") && plan.max_nodes == 1;
  if (options.flag("standalone") || alone) {
    if (options.flag("standalone") || !options.set("rdzv-id")) {
      plan.run_id = random_id();
    }
    plan.min_nodes = plan.max_nodes = 1;
    return;
  }
  if (backend == "static") {
    rendezvous.kind = RendezvousPoint::Kind::kStatic;
    rendezvous.host = options.text("master-addr");
    if (rendezvous.host.starts_with('[') && rendezvous.host.ends_with(']')) {  // IPv6
      rendezvous.host = rendezvous.host.substr(1, rendezvous.host.size() - 2);
    }
    rendezvous.port = options.set("master-port")
                          ? static_cast<int>(options.integer("master-port", 0))
                          : kStaticPort;
    if (!endpoint.empty()) {
      const Endpoint parsed = parse_endpoint(endpoint);
      rendezvous.host = parsed.host;
      rendezvous.port = parsed.port >= 0 ? parsed.port : rendezvous.port;
    }
    if (rendezvous.port == 0 && plan.max_nodes == 1) {
      rendezvous.kind = RendezvousPoint::Kind::kLocal;
    } else if (rendezvous.port == 0) {
      options.problem("port 0: nodes can only meet at a port that all of them know");
    }
    if (rendezvous.node_rank >= plan.max_nodes) {
      options.problem(fmt::format(
          "--node-rank {} is out of range for {} nodes; use 0 to {}",
          rendezvous.node_rank,
          plan.max_nodes,
          plan.max_nodes - 1));
    }
    if (plan.min_nodes != plan.max_nodes) {
      options.problem(
          "--nnodes MIN:MAX requires --rdzv-backend c10d and --rdzv-endpoint HOST:PORT");
    }
    return;
  }
  const Endpoint parsed = parse_endpoint(endpoint);
  rendezvous.kind = RendezvousPoint::Kind::kDynamic;
  rendezvous.host = parsed.host;
  rendezvous.port = parsed.port >= 0 ? parsed.port : kDynamicPort;
  if (plan.max_nodes == 1 && rendezvous.port == 0) {
    rendezvous.kind = RendezvousPoint::Kind::kLocal;
  }
  if (options.set("master-addr")) {
    plan.notes.emplace_back(
        "--master-addr has no effect with --rdzv-backend c10d, which uses --rdzv-endpoint");
  }
  if (rendezvous.node_rank != 0) {
    plan.notes.emplace_back(
        "--node-rank has no effect with --rdzv-backend c10d, which assigns ranks by address");
    rendezvous.node_rank = -1;
  }
}

void plan_logs(Options& options, const Environment& environment, LogPlan& log) {
  log.no_files = options.text("log-dir") == "/dev/null";
  log.folder = log.no_files ? "" : options.text("log-dir");
  log.redirects = StdSpec::parse(options.text("redirects"), "redirects");
  log.tee = StdSpec::parse(options.text("tee"), "tee");
  log.shown_ranks = parse_ranks(options, options.text("local-ranks-filter"));
  log.prefix = options.text("log-line-prefix-template");
  const auto prefix = environment.find("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
  if (log.prefix.empty() && prefix != environment.end()) {
    log.prefix = prefix->second;
  }
  log.output_needles = parse_needles(options.text("duplicate-stdout-filters"));
  log.error_needles = parse_needles(options.text("duplicate-stderr-filters"));
}

void plan_end(Options& options, const Environment& environment, LaunchPlan& plan) {
  plan.signals = signals_for(options, options.text("signals-to-handle"));
  plan.environment["TORCHELASTIC_SIGNALS_TO_HANDLE"] = options.text("signals-to-handle");
  const auto timeout = environment.find("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  if (options.set("shutdown-timeout")) {
    plan.shutdown_timeout = std::chrono::seconds(options.integer("shutdown-timeout", 0));
  } else if (timeout != environment.end()) {
    int64_t seconds = 0;
    const std::string& text = timeout->second;
    if (std::from_chars(text.data(), text.data() + text.size(), seconds).ec != std::errc() ||
        seconds < 0) {
      options.problem(
          fmt::format("TORCH_ELASTIC_SHUTDOWN_TIMEOUT={}: not a number of seconds", text));
    }
    plan.shutdown_timeout = std::chrono::seconds(seconds);
  }
  const std::string& events = options.text("event-log-handler");
  plan.event_log = events == "null" ? "" : events;
  if (!plan.event_log.empty() && plan.event_log != "console" &&
      !plan.event_log.starts_with("jsonl:")) {
    options.problem(
        fmt::format("--event-log-handler {}: must be null, console or jsonl:PATH", events));
  }
}

// Reads torchelastic's watchdogs, which are enabled by environment variables.
void plan_watches(Options& options, const Environment& environment, LaunchPlan& plan) {
  const auto value = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  if (value("TORCHELASTIC_ENABLE_FILE_TIMER") == "1") {
    plan.watchdog = value("TORCHELASTIC_TIMER_FILE");
  }
  const auto number = [&](const char* name, int most, const char* wanted) -> std::optional<int> {
    const std::string text = value(name);
    int result = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), result);
    if (text.empty()) {
      return std::nullopt;
    }
    if (error != std::errc() || end != text.data() + text.size() || result < 0 || result > most) {
      options.problem(fmt::format("{}={}: {}", name, text, wanted));
      return std::nullopt;
    }
    return result;
  };
  plan.health_check_port = number("TORCHELASTIC_HEALTH_CHECK_PORT", 65535, "not a port");
  plan.uninterruptible = std::chrono::seconds(
      number("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", 1'000'000, "not a number of seconds")
          .value_or(0));
}

}  // namespace

std::span<const OptionSpec> torchrun_options() {
  return kTorchrunOptions;
}

OptionRules torchrun_rules() {
  return {"lockstep launch --compat torchrun", true, "PET_"};
}

LaunchPlan plan_torchrun(
    const std::vector<std::string>& arguments,
    const Environment& environment,
    bool distributed_launch) {
  const OptionRules rules = torchrun_rules();
  Options options = parse_options(kTorchrunOptions, rules, arguments, environment);
  LaunchPlan plan;
  const Nodes nodes = parse_nodes(options, options.text("nnodes"));
  plan.min_nodes = nodes.least;
  plan.max_nodes = nodes.most;
  plan.workers = workers_for(options, options.text("nproc-per-node"), environment);
  plan.run_id = options.text("rdzv-id");
  plan.role = options.text("role");
  plan.restarts.most = static_cast<int>(options.integer("max-restarts", 0));
  plan.restarts.window = std::chrono::seconds(options.integer("restart-window", 0));
  if (options.seconds("monitor-interval", 0) <= 0) {
    options.problem("--monitor-interval must be greater than 0");
  }
  plan_torchrun_rendezvous(options, environment, plan);
  note_workers_of_cpus(plan, options, environment);
  plan_secret(options, environment, plan.rendezvous);
  plan_logs(options, environment, plan.log);
  plan_end(options, environment, plan);
  plan_watches(options, environment, plan);
  plan.virtual_local_rank = options.flag("virtual-local-rank");
  plan.numa_binding = options.text("numa-binding");
  if (!options.text("logs-specs").empty()) {
    options.problem("--logs-specs names a Python plug-in, which is not supported; omit it");
  }
  if (options.flag("module") && options.flag("no-python")) {
    options.problem("--module and --no-python are mutually exclusive");
  }
  if (options.flag("run-path")) {
    plan.notes.emplace_back("--run-path has no effect: python runs the program in its own process");
  }
  if (distributed_launch && !options.flag("use-env")) {
    plan.local_rank_argument = "--local-rank={}";
    if (options.flag("no-python")) {
      options.problem("--no-python requires --use-env with torch.distributed.launch");
    }
  }
  options.finish(rules);
  const Program program = worker_program(
      options.rest(), {options.flag("module"), options.flag("no-python")}, environment);
  plan.argv = program.argv;
  plan.name = program.name;
  plan.argument_at = program.argument_at;
  plan.propagate_exit_code = options.flag("propagate-exit-code") || program.ours;
  return plan;
}

}  // namespace lockstep::launch
