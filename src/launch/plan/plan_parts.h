// Options that several front ends have in common. Problems are added to `options`.
#pragma once

#include <string>
#include <vector>

#include "launch/plan/launch_plan.h"
#include "launch/plan/options.h"

namespace lockstep::launch {

/// Number of nodes: "N" or "MIN:MAX".
struct Nodes {
  int least = 1, most = 1;
};
Nodes parse_nodes(Options& options, const std::string& text);

/// Splits at single commas. A doubled comma is a literal comma: "a,b,,c" gives "a" and "b,c".
std::vector<std::string> parse_needles(const std::string& text);

/// Parses a list such as "0,1,2".
std::vector<int> parse_ranks(Options& options, const std::string& text);

/// Endpoint in the form "host", "host:port" or "[::1]:port". An empty string is localhost.
/// parse_endpoint() throws Error (config) for other strings.
struct Endpoint {
  std::string host;
  int port = -1;  // not given
};
Endpoint parse_endpoint(const std::string& text);

/// Returns the number of workers for "gpu", "cpu", "auto", "xpu" or a number.
int workers_for(Options& options, const std::string& text, const Environment& environment);

/// Returns the numbers of signals, given by names separated by commas.
std::vector<int> signals_for(Options& options, const std::string& text);

/// Applies the "key=value,..." of --rdzv-conf.
void apply_rendezvous_conf(Options& options, const std::string& text, RendezvousPoint& rendezvous);

/// Reads the secret that agents share. Throws Error (config) if other users may read the file.
std::string read_secret(const std::string& path);

/// Variable in which a launcher passes the secret to its agents. Workers do not get it.
inline constexpr const char* kSecretVariable = "LOCKSTEP_RDZV_SECRET";

/// Applies --rdzv-secret-file and --rdzv-insecure, or the secret passed by a launcher.
void plan_secret(
    const Options& options, const Environment& environment, RendezvousPoint& rendezvous);

/// Returns a random job id in the form of a UUID.
std::string random_id();

}  // namespace lockstep::launch
