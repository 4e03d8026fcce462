// Handles options that several front ends have in common.
#include "launch/plan/plan_parts.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/nearest.h"
#include "base/text.h"
#include "launch/plan/devices.h"
#include "launch/system/network.h"
#include "launch/system/process.h"

namespace lockstep::launch {

using std::chrono::milliseconds;

Nodes parse_nodes(Options& options, const std::string& text) {
  const size_t colon = text.find(':');
  Nodes nodes;
  const char* end = text.data() + text.size();
  const char* middle = text.data() + std::min(colon, text.size());
  const auto first = std::from_chars(text.data(), middle, nodes.least);
  bool good = first.ec == std::errc() && first.ptr == middle;
  if (colon == std::string::npos) {
    nodes.most = nodes.least;
  } else {
    const auto second = std::from_chars(middle + 1, end, nodes.most);
    good = good && second.ec == std::errc() && second.ptr == end;
  }
  if (!good || nodes.least < 1 || nodes.most < nodes.least || nodes.most > 100000) {
    options.problem(fmt::format("--nnodes {}: must be N or MIN:MAX with 0 < MIN <= MAX", text));
    return {};
  }
  return nodes;
}

// Splits at single commas. A doubled comma is a literal comma: "a,b,,c" gives "a" and "b,c".
std::vector<std::string> parse_needles(const std::string& text) {
  std::vector<std::string> result;
  std::string part;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      part += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      part += text[++i];
    } else {
      result.push_back(part);
      part.clear();
    }
  }
  if (!part.empty()) {
    result.push_back(part);
  }
  std::erase(result, "");
  return result;
}

std::vector<int> parse_ranks(Options& options, const std::string& text) {
  std::vector<int> result;
  for (const std::string& part : split(text, ',')) {
    int rank = -1;
    const char* end = part.data() + part.size();
    if (std::from_chars(part.data(), end, rank).ptr != end || rank < 0) {
      options.problem(
          fmt::format("--local-ranks-filter {}: must be ranks separated by commas", text));
      return {};
    }
    result.push_back(rank);
  }
  return result;
}

Endpoint parse_endpoint(const std::string& text) {
  if (text.empty()) {
    return {"localhost", -1};
  }
  Endpoint result;
  const bool bracketed = text[0] == '[';
  const size_t colon = bracketed ? text.find("]:") : text.rfind(':');
  const size_t host_end = bracketed ? text.find(']') : colon;
  result.host = text.substr(
      bracketed ? 1 : 0, host_end - (bracketed && host_end != std::string::npos ? 1 : 0));
  const bool has_port = colon != std::string::npos;
  const std::string port = has_port ? text.substr(colon + (bracketed ? 2 : 1)) : "0";
  const char* end = port.data() + port.size();
  int number = 0;
  const bool good_port = !port.empty() && port.size() <= 5 &&
                         std::from_chars(port.data(), end, number).ptr == end && number >= 0 &&
                         number < 65536;
  const bool good_host =
      !result.host.empty() &&
      std::all_of(result.host.begin(), result.host.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '.' || c == ':' || c == '-';
      });
  if (!good_port || !good_host || (bracketed && host_end == std::string::npos)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("'{}' is not an endpoint", text),
        "write HOST, HOST:PORT or [IPV6]:PORT, with a port below 65536");
  }
  result.port = has_port ? number : -1;
  return result;
}

int workers_for(Options& options, const std::string& text, const Environment& environment) {
  const int gpus = static_cast<int>(usable_gpus(environment).size());
  const int cpus = usable_cpus();
  if (text == "cpu" || (text == "auto" && gpus == 0)) {
    return cpus;
  }
  if (text == "gpu" || text == "auto") {
    if (gpus == 0) {
      throw Error(
          ErrorKind::kEnvironment,
          "--nproc-per-node gpu: no GPU is visible",
          "use a number or cpu; `lockstep doctor` checks the GPUs");
    }
    return gpus;
  }
  int number = 0;
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, number).ptr != end || number < 1 || number > 65536) {
    options.problem(fmt::format("--nproc-per-node {}: must be a number, auto, gpu or cpu", text));
    return 1;
  }
  return number;
}

std::vector<int> signals_for(Options& options, const std::string& text) {
  std::vector<int> result;
  for (const std::string& name : split(text, ',')) {
    const std::optional<int> number = signal_number(name);
    if (!number || *number == SIGKILL || *number == SIGSTOP) {
      options.problem(fmt::format(
          "--signals-to-handle {}: '{}' is not a signal that can be forwarded", text, name));
    } else {
      result.push_back(*number);
    }
  }
  return result;
}

namespace {

std::string without_blanks(std::string text) {
  text.erase(0, std::min(text.find_first_not_of(" \t"), text.size()));
  text.erase(text.find_last_not_of(" \t") + 1);
  return text;
}

/// Reads a boolean as torchrun does. Returns nullopt for other words.
std::optional<bool> boolean_of(const std::string& text) {
  const std::string word = lower_case(text);
  constexpr std::array kYes{"1", "true", "t", "yes", "y"};
  constexpr std::array kNo{"0", "false", "f", "no", "n"};
  if (std::ranges::find(kYes, word) != kYes.end()) {
    return true;
  }
  return std::ranges::find(kNo, word) != kNo.end() ? std::optional(false) : std::nullopt;
}

}  // namespace

void apply_rendezvous_conf(Options& options, const std::string& text, RendezvousPoint& rendezvous) {
  static const std::vector<std::string> known{
      "join_timeout",
      "last_call_timeout",
      "close_timeout",
      "heartbeat_timeout",
      "timeout",
      "keep_alive_interval",
      "keep_alive_max_attempt",
      "cas_backoff_max_seconds",
      "store_type",
      "read_timeout",
      "is_host",
      "store_port",
      "rank"};
  for (const std::string& part : split(text, ',')) {
    const size_t equals = part.find('=');
    const std::string key = without_blanks(part.substr(0, equals));
    const std::string value =
        equals == std::string::npos ? "" : without_blanks(part.substr(equals + 1));
    if (value.empty()) {
      options.problem(fmt::format("--rdzv-conf {}: '{}' has no value", text, part));
      continue;
    }
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      options.problem(
          fmt::format("--rdzv-conf: unknown key '{}'.{}", key, did_you_mean(key, known)));
    } else if (key == "store_type" && value != "tcp") {
      options.problem("--rdzv-conf store_type: only tcp is supported");
    } else if (key == "is_host") {
      rendezvous.is_host = boolean_of(value);
      if (!rendezvous.is_host) {
        options.problem(fmt::format("--rdzv-conf is_host={}: neither true nor false", value));
      }
    } else if (key != "store_type") {
      double number = 0;
      const char* end = value.data() + value.size();
      if (std::from_chars(value.data(), end, number).ptr != end || !(number >= 0) || number > 1e7) {
        options.problem(fmt::format("--rdzv-conf {}={}: not a number", key, value));
        continue;
      }
      const milliseconds time(static_cast<int64_t>(number * 1000));
      if (key == "join_timeout" || key == "timeout") {
        rendezvous.join_timeout = time;
      } else if (key == "last_call_timeout") {
        rendezvous.last_call = time;
      } else if (key == "heartbeat_timeout") {
        rendezvous.heartbeat_timeout = std::max(time, milliseconds(2000));
      } else if (key == "store_port") {
        rendezvous.store_port = static_cast<int>(number);
      } else if (key == "rank") {
        rendezvous.node_rank = static_cast<int>(number);
      }
    }
  }
}

std::string read_secret(const std::string& path) {
  if (path.empty()) {
    return "";
  }
  // Check the opened file and not the path, which may refer to another file a moment later.
  const Socket file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  if (!file || ::fstat(file.get(), &info) != 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--rdzv-secret-file {}: {}", path, std::strerror(errno)),
        "create one: (umask 077; head -c 32 /dev/urandom | base64 > FILE), and copy it to every "
        "node");
  }
  if ((info.st_mode & 077) != 0) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format(
            "--rdzv-secret-file {}: other users can read it (mode {:o})",
            path,
            info.st_mode & 0777),
        fmt::format("chmod 600 {}", path));
  }
  if (!S_ISREG(info.st_mode) || (info.st_uid != ::geteuid() && info.st_uid != 0)) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--rdzv-secret-file {}: not a file of this user", path),
        "create one: (umask 077; head -c 32 /dev/urandom | base64 > FILE)");
  }
  char bytes[4096];
  const ssize_t size = ::read(file.get(), bytes, sizeof bytes);
  std::string secret(bytes, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  secret.erase(secret.find_last_not_of(" \r\n\t") + 1);
  if (secret.size() < 16) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("--rdzv-secret-file {}: a secret must have at least 16 bytes", path),
        "create one: (umask 077; head -c 32 /dev/urandom | base64 > FILE)");
  }
  return secret;
}

void plan_secret(
    const Options& options, const Environment& environment, RendezvousPoint& rendezvous) {
  rendezvous.secret = read_secret(options.text("rdzv-secret-file"));
  rendezvous.insecure = options.flag("rdzv-insecure");
  const auto handed_over = environment.find(kSecretVariable);
  if (rendezvous.secret.empty() && !rendezvous.insecure && handed_over != environment.end()) {
    rendezvous.secret = handed_over->second;
  }
}

std::string random_id() {
  std::random_device device;
  std::array<uint32_t, 4> words{};
  std::generate(words.begin(), words.end(), std::ref(device));
  return fmt::format(
      "{:08x}-{:04x}-4{:03x}-{:04x}-{:04x}{:08x}",
      words[0],
      words[1] >> 16,
      words[1] & 0xfff,
      0x8000 | (words[2] >> 18),
      words[2] & 0xffff,
      words[3]);
}

}  // namespace lockstep::launch
