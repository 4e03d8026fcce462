// DeepSpeed's hostfile and its filters, and SLURM's host lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// A machine and the slots (GPUs, or workers) of it that are used, ascending.
struct HostSlots {
  std::string host;
  std::vector<int> slots;
};

/// Parses lines "HOST slots=N"; blank lines and lines that start with '#' are skipped. Throws Error
/// (config) with `source` and the line for other lines, a repeated host, or no host.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& source);

/// Applies --include or --exclude (at most one is not empty): "n1@n2:0,2". Hosts keep their order;
/// those without slots are dropped. Throws Error (config) for an unknown host or slot, invalid
/// syntax, or an empty result.
std::vector<HostSlots> filter_hosts(
    const std::vector<HostSlots>& hosts, const std::string& include, const std::string& exclude);

/// --world_info: URL-safe base64 of {"host": [slots], ...}.
std::string encode_world(const std::vector<HostSlots>& hosts);
/// Throws Error (config) if it is invalid.
std::vector<HostSlots> decode_world(const std::string& text);

/// Expands "n[01-03,7],m2" (SLURM_JOB_NODELIST). Throws Error (config) if it is invalid or has more
/// than 65,536 hosts.
std::vector<std::string> expand_hosts(const std::string& list);

}  // namespace lockstep::launch
