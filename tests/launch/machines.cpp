// Network namespaces that act as machines.
#include "launch/machines.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/format.h"

namespace lockstep::launch::testing {
namespace {

Ran host_shell(const std::string& command) {
  return run({"sh", "-ec", command});
}

}  // namespace

std::string Machines::unavailable() {
  const std::string name = fmt::format("lst{}", ::getpid());
  const Ran ran = host_shell(fmt::format(
      "ip netns add {0} && ip netns del {0} && unshare --uts true && ip link add {0} type bridge "
      "&& ip link del {0}",
      name));
  return ran.status.succeeded() ? ""
                                : "network namespaces are not allowed here: " + ran.error_output;
}

Machines::Machines(int count) : count_(count) {
  static int made = 0;
  prefix_ = fmt::format("l{}x{}", ::getpid() % 100000, made++);
  std::string script = fmt::format("ip link add {0}b type bridge; ip link set {0}b up;", prefix_);
  for (int machine = 0; machine < count; ++machine) {
    script += fmt::format(
        "ip netns add {0}; ip link add {0}h type veth peer name eth0 netns {0}; "
        "ip link set {0}h master {1}b up; ip -n {0} addr add {2}/24 dev eth0; "
        "ip -n {0} link set eth0 up; ip -n {0} link set lo up;",
        name(machine),
        prefix_,
        address(machine));
  }
  const Ran ran = host_shell(script);
  EXPECT_TRUE(ran.status.succeeded()) << ran.error_output;
}

Machines::~Machines() {
  std::string script;
  for (int machine = 0; machine < count_; ++machine) {
    script += fmt::format("ip netns del {0}; ip link del {0}h 2>/dev/null || true;", name(machine));
  }
  host_shell(script + fmt::format("ip link del {}b", prefix_));
}

std::string Machines::name(int machine) const {
  return fmt::format("{}n{}", prefix_, machine);
}

std::string Machines::address(int machine) const {
  return fmt::format("10.77.0.{}", machine + 1);
}

Ran Machines::shell(int machine, const std::string& command) const {
  return run({"ip", "netns", "exec", name(machine), "sh", "-ec", command});
}

std::future<Ran> Machines::launch(
    int machine,
    std::vector<std::string> arguments,
    const std::string& marker,
    std::function<void(pid_t)> during) const {
  const auto file = hosts_.find(machine);
  const std::string hosts =
      file == hosts_.end() ? ""
                           : fmt::format("mount --bind {} /etc/hosts; ", file->second.string());
  // Uses exec throughout, so that the pid is the agent's.
  std::vector<std::string> argv{
      "ip",
      "netns",
      "exec",
      name(machine),
      "unshare",
      "--uts",
      "--mount",
      "sh",
      "-c",
      fmt::format("hostname node{}; {}exec \"$@\"", machine, hosts),
      "sh"};
  const std::vector<std::string> agent = part("launch", std::move(arguments));
  argv.insert(argv.end(), agent.begin(), agent.end());
  return std::async(
      std::launch::async, [argv, marker, during] { return run(argv, {}, marker, during); });
}

}  // namespace lockstep::launch::testing
