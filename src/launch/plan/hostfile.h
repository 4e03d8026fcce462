// DeepSpeed's hostfile, its filters, and lists of hosts as SLURM writes them.
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

/// "HOST slots=N" lines; blank lines and those that begin with '#' are skipped. Error (config) with
/// `source` and the line: another line, a host twice, no host at all.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& source);

/// Applies --include or --exclude (at most one is not empty): "n1@n2:0,2". Hosts keep their order;
/// those left without slots drop out. Error (config) for an unknown host or slot, a wrong form, or
/// nothing left.
std::vector<HostSlots> filter_hosts(
    const std::vector<HostSlots>& hosts, const std::string& include, const std::string& exclude);

/// --world_info: URL-safe base64 of {"host": [slots], ...}.
std::string encode_world(const std::vector<HostSlots>& hosts);
/// Error (config) where it is not one.
std::vector<HostSlots> decode_world(const std::string& text);

/// "n[01-03,7],m2" to names, as SLURM_JOB_NODELIST has them. Error (config) where it is not one, or
/// of more than 65,536 hosts.
std::vector<std::string> expand_hosts(const std::string& list);

}  // namespace lockstep::launch
