// Transports that start the agents of other machines: ssh, pdsh, MPI, SLURM. Commands are argument
// arrays; the parts read by a remote shell are quoted word by word.
#pragma once

#include <string>
#include <vector>

#include "launch/frontends/deepspeed.h"

namespace lockstep::launch {

/// The command of every machine, except for its node rank.
struct RemoteJob {
  std::vector<HostSlots> hosts;
  std::string hostfile;
  Environment exported;
  std::string secret;               // for the agents; empty: they already have one or need none
  std::string folder;               // working directory
  std::vector<std::string> before;  // the agent's words before "--node_rank=I"
  std::vector<std::string> after;
  std::vector<std::string> transport_arguments;
  std::string ssh_port;  // empty: the usual one
  std::string prepare;   // script to source first; empty: none
};

/// Data that ssh passes to an agent on its stdin, as one line.
struct HandedOver {
  std::string secret;
  Environment environment;

  std::string line() const;
  /// Reads exactly the line. Throws Error (environment) if there is none.
  static HandedOver read(int descriptor);
};

/// Commands that start the agents with `transport`: "ssh", "pdsh", "openmpi", "mpich", "impi",
/// "mvapich", "slurm".
std::vector<DeepspeedRequest::Command> remote_commands(
    const std::string& transport, const RemoteJob& job);

}  // namespace lockstep::launch
