// Parses hostfiles, host filters and SLURM host lists.
#include "launch/plan/hostfile.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/nearest.h"
#include "launch/plan/options.h"

namespace lockstep::launch {
namespace {

constexpr int kMostSlots = 4096;
constexpr size_t kMostHosts = 65536;

[[noreturn]] void fail(const std::string& text, const std::string& remedy) {
  throw Error(ErrorKind::kConfig, text, remedy);
}

std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0
             ? std::optional(value)
             : std::nullopt;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string_view::npos
             ? ""
             : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Parses "HOST slots=N ...". Ignores anything after the number.
HostSlots parse_line(std::string_view line, const std::string& where) {
  const size_t space = line.find_first_of(" \t");
  std::string_view rest = space == std::string_view::npos ? "" : trim(line.substr(space));
  constexpr std::string_view kSlots = "slots=";
  const size_t digits_end =
      rest.starts_with(kSlots) ? rest.find_first_not_of("0123456789", kSlots.size()) : 0;
  const auto count =
      rest.starts_with(kSlots)
          ? number_in(rest.substr(kSlots.size(), std::min(digits_end, rest.size()) - kSlots.size()))
          : std::nullopt;
  const std::string_view name = line.substr(0, space);
  const bool is_plain = std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
  // ssh and mpirun would parse a name that starts with '-' as an option.
  if (!count || *count > kMostSlots || name[0] == '-' || !is_plain) {
    fail(
        fmt::format("{}: '{}' is not a valid hostfile line", where, line.substr(0, 80)),
        fmt::format("write HOST slots=N, with N of at most {}", kMostSlots));
  }
  HostSlots host{std::string(name), {}};
  for (int slot = 0; slot < *count; ++slot) {
    host.slots.push_back(slot);
  }
  return host;
}

// One "NAME" or "NAME:SLOT,SLOT" of a host filter.
struct Chosen {
  std::string host;
  std::vector<int> slots;  // empty: all slots
};

std::vector<Chosen> parse_filter(const std::string& filter) {
  std::vector<Chosen> result;
  for (const std::string& node : split(filter, '@')) {
    const size_t colon = node.find(':');
    Chosen chosen{std::string(trim(node.substr(0, colon))), {}};
    if (colon != std::string::npos) {
      const std::vector<std::string> parts = split(node.substr(colon + 1), ',');
      for (const std::string& part : parts) {
        const auto slot = number_in(trim(part));
        if (!slot) {
          fail(
              fmt::format("'{}' in the filter '{}' is not a slot", part, filter),
              "write NODE:0,2@NODE");
        }
        chosen.slots.push_back(*slot);
      }
      if (parts.empty()) {
        fail(fmt::format("the filter '{}' has no slot after ':'", filter), "write NODE:0,2@NODE");
      }
    }
    if (chosen.host.empty()) {
      fail(fmt::format("the filter '{}' has a node without a name", filter), "write NODE:0,2@NODE");
    }
    result.push_back(chosen);
  }
  return result;
}

// Returns the slots of one host that a filter names. Throws if the host does not have them.
std::set<int> named_slots(const std::vector<Chosen>& filter, const HostSlots& host) {
  std::set<int> result;
  for (const Chosen& chosen : filter) {
    if (chosen.host != host.host) {
      continue;
    }
    const std::vector<int>& slots = chosen.slots.empty() ? host.slots : chosen.slots;
    for (const int slot : slots) {
      if (std::find(host.slots.begin(), host.slots.end(), slot) == host.slots.end()) {
        fail(
            fmt::format("host {} has no slot {}", host.host, slot),
            fmt::format("its slots are {}", fmt::join(host.slots, ", ")));
      }
      result.insert(slot);
    }
  }
  return result;
}

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string to_base64(const std::string& bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j) {
      word = word << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += i + j <= bytes.size() ? kBase64[word >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> from_base64(std::string text) {
  while (!text.empty() && text.back() == '=') {
    text.pop_back();
  }
  std::string bytes;
  uint32_t word = 0;
  int bits = 0;
  for (const char letter : text) {
    const size_t value = kBase64.find(letter);
    if (value == std::string_view::npos) {
      return std::nullopt;
    }
    word = (word << 6 | static_cast<uint32_t>(value)) & 0xffffff;
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>(word >> bits & 255);
    }
  }
  return bytes;
}

// Expands "01-03" or "7", with the same number of digits, and appends each number to `prefix`.
void expand_range(
    const std::string& range, const std::string& prefix, std::vector<std::string>& names) {
  const size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const auto low = number_in(first);
  const auto high = dash == std::string::npos ? low : number_in(range.substr(dash + 1));
  if (!low || !high || *high < *low || static_cast<size_t>(*high - *low) >= kMostHosts) {
    fail(fmt::format("'{}' is not a range of hosts", range), "for example n[01-03,7]");
  }
  for (int number = *low; number <= *high; ++number) {
    names.push_back(fmt::format("{}{:0{}}", prefix, number, first.size()));
  }
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& source) {
  std::vector<HostSlots> hosts;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line[0] == '#') {
      continue;
    }
    HostSlots host = parse_line(line, fmt::format("{}:{}", source, number));
    for (const HostSlots& other : hosts) {
      if (other.host == host.host) {
        fail(
            fmt::format("{}:{}: host {} is listed twice", source, number, host.host),
            "join its lines");
      }
    }
    hosts.push_back(std::move(host));
    if (hosts.size() > kMostHosts) {
      fail(fmt::format("{}: more than {} hosts", source, kMostHosts), "split the job");
    }
  }
  if (hosts.empty()) {
    fail(fmt::format("{}: no hosts", source), "write a line HOST slots=N for each host");
  }
  return hosts;
}

std::vector<HostSlots> filter_hosts(
    const std::vector<HostSlots>& hosts, const std::string& include, const std::string& exclude) {
  if (!include.empty() && !exclude.empty()) {
    fail("--include and --exclude are mutually exclusive", "use only one of them");
  }
  const std::vector<Chosen> filter = parse_filter(include.empty() ? exclude : include);
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) {
    names.push_back(host.host);
  }
  for (const Chosen& chosen : filter) {
    if (std::find(names.begin(), names.end(), chosen.host) == names.end()) {
      fail(
          fmt::format(
              "host '{}' is not in the hostfile.{}", chosen.host, did_you_mean(chosen.host, names)),
          fmt::format("its hosts are {}", fmt::join(names, ", ")));
    }
  }
  std::vector<HostSlots> result;
  for (const HostSlots& host : hosts) {
    const std::set<int> named = named_slots(filter, host);
    HostSlots left{host.host, {}};
    for (const int slot : host.slots) {
      if (filter.empty() || named.contains(slot) == !include.empty()) {
        left.slots.push_back(slot);
      }
    }
    if (!left.slots.empty()) {
      result.push_back(std::move(left));
    }
  }
  if (result.empty()) {
    fail("the filters exclude every slot", "relax --include or --exclude");
  }
  return result;
}

std::string encode_world(const std::vector<HostSlots>& hosts) {
  nlohmann::ordered_json world = nlohmann::ordered_json::object();
  for (const HostSlots& host : hosts) {
    world[host.host] = host.slots;
  }
  return to_base64(world.dump());
}

std::vector<HostSlots> decode_world(const std::string& text) {
  const auto bytes = from_base64(text);
  std::vector<HostSlots> hosts;
  try {
    const auto world = nlohmann::ordered_json::parse(bytes.value_or(""));
    for (const auto& [host, slots] : world.items()) {
      hosts.push_back({host, slots.get<std::vector<int>>()});
    }
  } catch (const nlohmann::json::exception&) {
    hosts.clear();
  }
  const bool good =
      !hosts.empty() && std::all_of(hosts.begin(), hosts.end(), [](const HostSlots& host) {
        return !host.slots.empty() && host.slots.size() <= kMostSlots;
      });
  if (!good) {
    fail(
        "--world_info is not base64 of {\"host\": [slots]}",
        "use `lockstep launch --hostfile` to start the nodes");
  }
  return hosts;
}

std::vector<std::string> expand_hosts(const std::string& list) {
  std::vector<std::string> names;
  size_t at = 0;
  while (at < list.size()) {
    const size_t stop = std::min(list.find_first_of(",[", at), list.size());
    const std::string prefix = list.substr(at, stop - at);
    if (stop == list.size() || list[stop] == ',') {
      if (!prefix.empty()) {
        names.push_back(prefix);
      }
      at = stop + 1;
      continue;
    }
    const size_t close = list.find(']', stop);
    if (close == std::string::npos || (close + 1 < list.size() && list[close + 1] != ',')) {
      fail(fmt::format("'{}' is not a list of hosts", list), "for example n[01-03,7],m2");
    }
    for (const std::string& range : split(list.substr(stop + 1, close - stop - 1), ',')) {
      expand_range(range, prefix, names);
      if (names.size() > kMostHosts) {
        fail(fmt::format("'{}' has more than {} hosts", list, kMostHosts), "split the job");
      }
    }
    at = close + 2;
  }
  return names;
}

}  // namespace lockstep::launch
