// DeepSpeed's hostfile and its filters, and SLURM's host lists.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// Machine and those of its slots (GPUs, or workers) that are used, in ascending order.
struct HostSlots {
  std::string host;
  std::vector<int> slots;
};

/// Parses lines "HOST slots=N". Skips blank lines and lines that start with '#'. Throws Error
/// (config) with `source` and the line for any other line, a repeated host, or a file without
/// hosts.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& source);

/// Applies --include or --exclude, such as "n1@n2:0,2". At most one of them may be set. Hosts keep
/// their order; hosts without slots are removed. Throws Error (config) for an unknown host or slot,
/// invalid syntax, or an empty result.
std::vector<HostSlots> filter_hosts(
    const std::vector<HostSlots>& hosts, const std::string& include, const std::string& exclude);

/// Returns --world_info: URL-safe base64 of {"host": [slots], ...}.
std::string encode_world(const std::vector<HostSlots>& hosts);
/// Parses --world_info. Throws Error (config) if it is invalid.
std::vector<HostSlots> decode_world(const std::string& text);

/// Expands a list such as "n[01-03,7],m2" (SLURM_JOB_NODELIST). Throws Error (config) if it is
/// invalid or has more than 65,536 hosts.
std::vector<std::string> expand_hosts(const std::string& list);

}  // namespace lockstep::launch
