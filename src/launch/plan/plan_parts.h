// Parts of a launch plan that several front ends share.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"
#include "launch/plan/options.h"

namespace lockstep::launch {

/// "N" or "MIN:MAX". Problems go to `options`.
struct Nodes {
  int least = 1, most = 1;
};
Nodes parse_nodes(Options& options, const std::string& text);

/// Splits at single commas. A doubled comma stands for one: "a,b,,c" gives "a" and "b,c".
std::vector<std::string> parse_needles(const std::string& text);

/// "0,1,2". Problems go to `options`.
std::vector<int> parse_ranks(Options& options, const std::string& text);

/// Parsed form of "host", "host:port" or "[::1]:port"; an empty string is localhost. Throws Error
/// (config) for other strings.
struct Endpoint {
  std::string host;
  int port = -1;  // not given
};
Endpoint parse_endpoint(const std::string& text);

/// Number of workers for "gpu", "cpu", "auto", "xpu" or a number. Problems are added to `options`.
int workers_for(Options& options, const std::string& text, const Environment& environment);

/// Names of signals, separated by commas, to numbers. Problems go to `options`.
std::vector<int> signals_for(Options& options, const std::string& text);

/// Reads --rdzv-conf's "key=value,...". Problems go to `options`.
void apply_rendezvous_conf(Options& options, const std::string& text, RendezvousPoint& rendezvous);

/// Reads the secret that agents share from a file that only its owner may read. Throws Error
/// (config).
std::string read_secret(const std::string& path);

/// Variable in which a launcher passes a secret to its agents; workers do not get it.
inline constexpr const char* kSecretVariable = "LOCKSTEP_RDZV_SECRET";

/// Handles --rdzv-secret-file and --rdzv-insecure, or a secret passed by a launcher.
void plan_secret(
    const Options& options, const Environment& environment, RendezvousPoint& rendezvous);

/// A random job id, in the form of a UUID.
std::string random_id();

}  // namespace lockstep::launch
