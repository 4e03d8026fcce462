// torchrun's options as a launch plan.
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
    {"nproc-per-node", kValue, "1", "workers on each node: a number, auto, gpu, cpu"},
    {"rdzv-backend", kValue, "static", "how nodes meet: static or c10d"},
    {"rdzv-endpoint", kValue, "", "where nodes meet: HOST[:PORT]"},
    {"rdzv-id", kValue, "none", "name of the job, the same on all nodes"},
    {"rdzv-conf", kValue, "", "key=value,... for the meeting"},
    {"rdzv-secret-file",
     kValue,
     "",
     "a file of mode 0600 that all nodes have: agents without it are refused"},
    {"rdzv-insecure", kFlag, "", "meet without a secret: whoever reaches the address may join"},
    {"standalone", kFlag, "", "one node, a free port, a random id"},
    {"max-restarts", kValue, "0", "how often the workers are started again after a failure"},
    {"restart-window",
     kValue,
     "0",
     "seconds in which --max-restarts counts; 0: it counts for the whole job"},
    {"monitor-interval", kValue, "0.1", "accepted; a worker's end is seen at once"},
    {"start-method",
     kValue,
     "spawn",
     "accepted; programs are always executed",
     0,
     "spawn|fork|forkserver"},
    {"event-log-handler", kValue, "null", "where events go: null, console, jsonl:PATH"},
    {"role", kValue, "default", "name of the workers' role"},
    {"module", kFlag, "", "run the program as a Python module", 'm'},
    {"no-python", kFlag, "", "run the program directly"},
    {"run-path", kFlag, "", "accepted; the program is run by python"},
    {"log-dir", kValue, "", "folder of log files; /dev/null for none"},
    {"redirects", kValue, "0", "streams that go to files only: 0-3, or RANK:0-3,...", 'r'},
    {"tee", kValue, "0", "streams that go to files and the console", 't'},
    {"log-line-prefix-template",
     kValue,
     "",
     "prefix of console lines; ${role_name} ${local_rank} ${rank} ${hostname}"},
    {"local-ranks-filter", kValue, "", "local ranks that the console shows: 0,1,..."},
    {"duplicate-stdout-filters",
     kValue,
     "",
     "copy lines that hold any of these to filtered_stdout.log"},
    {"duplicate-stderr-filters",
     kValue,
     "",
     "copy lines that hold any of these to filtered_stderr.log"},
    {"node-rank", kValue, "0", "rank of this node, with the static backend"},
    {"master-addr", kValue, "127.0.0.1", "address of node 0, with the static backend"},
    {"master-port", kValue, "", "port of node 0 [29500]"},
    {"local-addr", kValue, "", "address of this node that the others shall use"},
    {"logs-specs", kValue, "", "not supported: the name of a Python plug-in"},
    {"numa-binding",
     kValue,
     "",
     "bind workers to CPUs next to their GPU",
     0,
     "node|socket|exclusive|core-complex"},
    {"signals-to-handle",
     kValue,
     "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     "signals that are passed on to workers"},
    {"shutdown-timeout",
     kValue,
     "",
     "seconds from a stop to SIGKILL [30 after a signal, 0.7 after a failure]"},
    {"virtual-local-rank", kFlag, "", "LOCAL_RANK=0 and one visible GPU for every worker"},
    {"propagate-exit-code",
     kFlag,
     "",
     "exit with the failed worker's code (128 + N for signal N), not with 1"},
    {"use-env", kFlag, "", "of torch.distributed.launch: no --local-rank argument"},
    {"print-completion", kValue, "", "print a completion script", 0, "bash|zsh|tcsh"},
    {"compat",
     kValue,
     "",
     "read the options as this launcher does",
     0,
     "torchrun|accelerate|deepspeed|torch.distributed.launch"},
    {"help", kFlag, "", "this text", 'h'},
};

// --node-rank, or the index of this pod in an Indexed Job or JobSet.
int node_rank_of(Options& options, const Environment& environment, int nodes) {
  const auto pod = environment.find("JOB_COMPLETION_INDEX");
  if (options.set("node-rank") || nodes < 2 || pod == environment.end()) {
    return static_cast<int>(options.integer("node-rank", 0));
  }
  int rank = 0;
  const std::string& text = pod->second;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (problem != std::errc() || end != text.data() + text.size() || rank < 0) {
    options.problem(fmt::format("JOB_COMPLETION_INDEX={}: the number of a pod is wanted", text));
  }
  return rank;
}

// Kubeflow's operator counts a pod's CPUs as devices if it has no GPUs.
void note_workers_of_cpus(
    LaunchPlan& plan, const Options& options, const Environment& environment) {
  constexpr int kMany = 4;
  const bool is_pod = environment.contains("KUBERNETES_SERVICE_HOST");
  const auto told = environment.find("PET_NPROC_PER_NODE");
  const bool counted = told != environment.end() && options.text("nproc-per-node") == told->second;
  if (is_pod && counted && plan.workers >= kMany && usable_gpus(environment).empty()) {
    plan.notes.push_back(fmt::format(
        "{} ranks of few threads each, because this pod has no GPU and PET_NPROC_PER_NODE counts "
        "its CPUs: `numProcPerNode: 1` in the runtime, or --nproc-per-node 1, gives one rank all "
        "of them",
        plan.workers));
  }
}

void plan_torchrun_rendezvous(Options& options, const Environment& environment, LaunchPlan& plan) {
  std::string backend = options.text("rdzv-backend");
  const std::string& endpoint = options.text("rdzv-endpoint");
  if (backend != "static" && backend != "c10d") {
    options.problem(fmt::format(
        "--rdzv-backend {}: static and c10d are supported; c10d needs no service of its own, give "
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
    plan.run_id = random_id();
    plan.min_nodes = plan.max_nodes = 1;
    return;
  }
  if (backend == "static") {
    rendezvous.kind = RendezvousPoint::Kind::kStatic;
    rendezvous.host = options.text("master-addr");
    rendezvous.port = options.set("master-port")
                          ? static_cast<int>(options.integer("master-port", 0))
                          : kStaticPort;
    if (!endpoint.empty()) {
      const Endpoint parsed = parse_endpoint(endpoint);
      rendezvous.host = parsed.host;
      rendezvous.port = parsed.port >= 0 ? parsed.port : rendezvous.port;
    }
    if (rendezvous.node_rank >= plan.max_nodes) {
      options.problem(fmt::format(
          "--node-rank {} of {} nodes: 0 to {} are allowed",
          rendezvous.node_rank,
          plan.max_nodes,
          plan.max_nodes - 1));
    }
    if (plan.min_nodes != plan.max_nodes) {
      options.problem("--nnodes MIN:MAX wants --rdzv-backend c10d and --rdzv-endpoint HOST:PORT");
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
        "--master-addr has no effect with --rdzv-backend c10d: the endpoint says where to meet");
  }
  if (rendezvous.node_rank != 0) {
    plan.notes.emplace_back(
        "--node-rank has no effect with --rdzv-backend c10d: ranks follow from addresses");
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
      options.problem(fmt::format("TORCH_ELASTIC_SHUTDOWN_TIMEOUT={}: seconds are wanted", text));
    }
    plan.shutdown_timeout = std::chrono::seconds(seconds);
  }
  const std::string& events = options.text("event-log-handler");
  plan.event_log = events == "null" ? "" : events;
  if (!plan.event_log.empty() && plan.event_log != "console" &&
      !plan.event_log.starts_with("jsonl:")) {
    options.problem(
        fmt::format("--event-log-handler {}: null, console or jsonl:PATH is wanted", events));
  }
}

// Torchelastic's watchdogs, which are enabled by variables.
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
  plan.health_check_port = number("TORCHELASTIC_HEALTH_CHECK_PORT", 65535, "a port is wanted");
  plan.uninterruptible = std::chrono::seconds(
      number("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT", 1'000'000, "seconds are wanted")
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
    options.problem("--monitor-interval must be more than 0");
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
    options.problem(
        "--logs-specs names a Python plug-in, which this launcher has not; leave it out");
  }
  if (options.flag("module") && options.flag("no-python")) {
    options.problem("--module and --no-python exclude each other");
  }
  if (options.flag("run-path")) {
    plan.notes.emplace_back(
        "--run-path has no effect: the program is run by python in a process of its own");
  }
  if (distributed_launch && !options.flag("use-env")) {
    plan.local_rank_argument = "--local-rank={}";
    if (options.flag("no-python")) {
      options.problem("--no-python wants --use-env with torch.distributed.launch");
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
