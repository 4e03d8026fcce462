// Transports that start the agents of other machines: ssh, pdsh, MPI and SLURM. Commands are
// argument arrays. Arguments that a remote shell parses are quoted individually.
#pragma once

#include <string>
#include <vector>

#include "launch/frontends/deepspeed.h"

namespace lockstep::launch {

/// Command for every machine, without the node rank.
struct RemoteJob {
  std::vector<HostSlots> hosts;
  std::string hostfile;
  Environment exported;
  std::string secret;               // for the agents; empty if they have it already or need none
  std::string folder;               // working directory
  std::vector<std::string> before;  // arguments of the agent before "--node_rank=I"
  std::vector<std::string> after;
  std::vector<std::string> transport_arguments;
  std::string ssh_port;  // empty: the default port
  std::string prepare;   // script to source first; empty: none
};

/// Data that ssh passes to an agent on its stdin, as one line.
struct HandedOver {
  std::string secret;
  Environment environment;

  std::string line() const;
  /// Reads this line and nothing after it. Throws Error (environment) if there is none.
  static HandedOver read(int descriptor);
};

/// Returns the commands that start the agents with `transport`: "ssh", "pdsh", "openmpi", "mpich",
/// "impi", "mvapich" or "slurm".
std::vector<DeepspeedRequest::Command> remote_commands(
    const std::string& transport, const RemoteJob& job);

}  // namespace lockstep::launch
