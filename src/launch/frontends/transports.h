// How the agents of other machines are started: ssh, pdsh, MPI, SLURM. Commands are arrays of
// arguments; what a remote shell reads is quoted word by word.
#pragma once

#include <string>
#include <vector>

#include "launch/frontends/deepspeed.h"

namespace lockstep::launch {

/// What every machine is to run, but for its number.
struct RemoteJob {
  std::vector<HostSlots> hosts;
  std::string hostfile;
  Environment exported;
  std::string secret;               // for the agents; empty: they have one, or need none
  std::string folder;               // where it is run
  std::vector<std::string> before;  // the agent's words before "--node_rank=I"
  std::vector<std::string> after;
  std::vector<std::string> transport_arguments;
  std::string ssh_port;  // empty: the usual one
  std::string prepare;   // a script that is sourced first; empty: none
};

/// What ssh hands an agent on its stdin, as one line.
struct HandedOver {
  std::string secret;
  Environment environment;

  std::string line() const;
  /// Reads the line and nothing behind it. Error (environment) where none comes.
  static HandedOver read(int descriptor);
};

/// Commands that start the agents with `transport`: "ssh", "pdsh", "openmpi", "mpich", "impi",
/// "mvapich", "slurm".
std::vector<DeepspeedRequest::Command> remote_commands(
    const std::string& transport, const RemoteJob& job);

}  // namespace lockstep::launch
