// Plan of a launch. All front ends produce it.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "launch/plan/std_spec.h"
#include "launch/workers/restarts.h"
#include "launch/workers/worker_environment.h"

namespace lockstep::launch {

/// Rendezvous of the agents.
struct RendezvousPoint {
  enum class Kind {
    kLocal,   // one machine, no peers
    kStatic,  // a fixed number of nodes, each with its rank; node 0 hosts
    kDynamic  // between a minimum and a maximum of nodes; the node with the endpoint's address
              // hosts
  } kind = Kind::kLocal;
  std::string host = "127.0.0.1";
  int port = 29400;
  int node_rank = -1;           // kStatic
  std::optional<bool> is_host;  // with kDynamic: set by the user instead of detected
  std::string local_address;    // address of this node for its peers; empty: detected
  std::string secret;           // shared by the agents; empty: none
  bool insecure = false;        // do not require a secret on a publicly reachable address
  std::chrono::milliseconds join_timeout{600000}, last_call{30000}, heartbeat_timeout{5000};
  int store_port = 0;  // 0: a free one

  /// True if nothing but the owner of a connection identifies its process: agents and coordinator
  /// then accept only processes of their own user and of root, on this machine.
  bool only_own_user() const { return secret.empty() && !insecure; }
};

/// Log files of the workers' streams, and what is shown on the console.
struct LogPlan {
  std::filesystem::path folder;  // empty: a temporary folder
  bool no_files = false;
  StdSpec redirects, tee;
  std::vector<int> shown_ranks;  // empty: all
  std::string prefix;            // template; empty: "[${role_name}${local_rank}]:"
  std::vector<std::string> output_needles, error_needles;
  std::filesystem::path rank_log_folder;  // deepspeed's <time>_rank<R>.log
};

struct LaunchPlan {
  std::vector<std::string> argv;    // of a worker
  std::string name;                 // in the report
  std::string local_rank_argument;  // "--local-rank={}": put before the program's arguments at
                                    // `argument_at`
  size_t argument_at = 0;
  int min_nodes = 1, max_nodes = 1;
  int workers = 1;  // on this node
  std::string role = "default", run_id = "none";
  RendezvousPoint rendezvous;
  RestartLimit restarts;
  LogPlan log;
  std::vector<int> signals;
  std::optional<std::chrono::milliseconds>
      shutdown_timeout;  // nullopt: 30 s after a signal, 0.7 s after a failure
  bool virtual_local_rank = false;
  bool propagate_exit_code = false;
  bool deepspeed_environment = false;  // CROSS_RANK, CROSS_SIZE, LOCAL_SIZE
  bool plain = false;                  // one process without RANK etc. (accelerate's simple launch)
  bool watch_stdin = false;  // the end of stdin ends the job, because its launcher is gone
  bool pid_file = false;     // create /tmp/<pid>.deepspeed while it runs
  std::optional<WorkerIdentity>
      identity;                        // of the single worker, if srun or mpirun started this task
  std::string numa_binding;            // empty: none
  std::vector<std::vector<int>> cpus;  // for each local worker; empty: not bound
  std::string event_log;               // "", "console", "jsonl:PATH"
  std::optional<std::string>
      watchdog;  // named pipe of torchelastic's timers; empty: a temporary one
  std::chrono::seconds uninterruptible{0};  // AttemptOptions::uninterruptible
  std::optional<int> health_check_port;     // port of the health endpoint
  LogLevel log_level = LogLevel::kInfo;
  Environment environment;  // additional variables for the workers
  std::vector<std::string>
      notes;  // printed before the start: automatic choices and ignored options
};

}  // namespace lockstep::launch
