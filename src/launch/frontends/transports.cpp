// Builds the commands of ssh, pdsh, MPI and SLURM.
#include "launch/frontends/transports.h"

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "launch/plan/plan_parts.h"
#include "launch/plan/shell_words.h"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::string quoted(const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) {
      text += ' ';
    }
    text += shell_quote(word);
  }
  return text;
}

Words host_names(const RemoteJob& job) {
  Words names;
  for (const HostSlots& host : job.hosts) {
    names.push_back(host.host);
  }
  return names;
}

// Returns the command string for a remote shell. `node` is not quoted, because pdsh replaces %n in
// it.
std::string shell_text(
    const RemoteJob& job, const std::string& node, const std::string& exports, const char* flags) {
  std::string text = "cd " + shell_quote(job.folder) + " && " + exports;
  if (!job.prepare.empty()) {
    text += ". " + shell_quote(job.prepare) + " && ";
  }
  // With --watch_stdin, the agent stops at the end of stdin, which is closed if ssh is killed.
  return text + "exec " + quoted(job.before) + " --node_rank=" + node + " --watch_stdin " + flags +
         quoted(job.after);
}

Environment with_secret(const RemoteJob& job) {
  Environment result = job.exported;
  if (!job.secret.empty()) {
    result[kSecretVariable] = job.secret;
  }
  return result;
}

Words names_of(const Environment& environment) {
  Words names;
  for (const auto& [name, value] : environment) {
    names.push_back(name);
  }
  return names;
}

std::vector<DeepspeedRequest::Command> with_ssh(const RemoteJob& job) {
  std::vector<DeepspeedRequest::Command> commands;
  for (size_t node = 0; node < job.hosts.size(); ++node) {
    Words words{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"};
    if (!job.ssh_port.empty()) {
      append(words, {"-p", job.ssh_port});
    }
    append(words, job.transport_arguments);
    append(
        words,
        {"--", job.hosts[node].host, shell_text(job, std::to_string(node), "", "--read_stdin ")});
    commands.push_back(
        {job.hosts[node].host, words, {}, HandedOver{job.secret, job.exported}.line()});
  }
  return commands;
}

Words with_pdsh(const RemoteJob& job) {
  Words words{"pdsh", "-S", "-f", "1024", "-R", "ssh"};
  append(words, job.transport_arguments);
  // pdsh forwards neither stdin nor environment, so the caller exports no secrets with it.
  std::string exports;
  for (const auto& [name, value] : job.exported) {
    exports += fmt::format("export {}={} && ", name, shell_quote(value));
  }
  append(
      words,
      {"-w",
       fmt::format("{}", fmt::join(host_names(job), ",")),
       shell_text(job, "%n", exports, "")});
  return words;
}

// Returns the agent's arguments. There is one task per machine, and the agent finds its node rank
// in variables of MPI or SLURM.
Words agent_words(const RemoteJob& job) {
  Words words;
  if (!job.prepare.empty()) {
    words = {"sh", "-c", fmt::format(". {} && exec \"$@\"", shell_quote(job.prepare)), "sh"};
  }
  append(words, job.before);
  append(words, job.after);
  return words;
}

Words with_openmpi(const RemoteJob& job) {
  Words words{
      "mpirun",
      "-n",
      std::to_string(job.hosts.size()),
      "--map-by",
      "ppr:1:node",
      "--host",
      fmt::format("{}", fmt::join(host_names(job), ","))};
  append(words, job.transport_arguments);
  for (const std::string& name : names_of(with_secret(job))) {
    append(words, {"-x", name});
  }
  append(words, agent_words(job));
  return words;
}

Words with_hydra(const RemoteJob& job) {
  Words words{
      "mpirun",
      "-n",
      std::to_string(job.hosts.size()),
      "-ppn",
      "1",
      "-hosts",
      fmt::format("{}", fmt::join(host_names(job), ","))};
  append(words, job.transport_arguments);
  append(words, {"-genvlist", fmt::format("{}", fmt::join(names_of(with_secret(job)), ","))});
  append(words, agent_words(job));
  return words;
}

Words with_mvapich(const RemoteJob& job) {
  Words words{"mpirun_rsh", "-export-all", "-np", std::to_string(job.hosts.size())};
  append(words, job.transport_arguments);
  append(words, host_names(job));
  append(words, agent_words(job));
  return words;
}

Words with_slurm(const RemoteJob& job) {
  const std::string count = std::to_string(job.hosts.size());
  Words words{
      "srun",
      "-N",
      count,
      "-n",
      count,
      "--ntasks-per-node=1",
      "--kill-on-bad-exit=1",
      "--nodelist",
      fmt::format("{}", fmt::join(host_names(job), ","))};
  append(words, job.transport_arguments);
  words.emplace_back("--export=ALL");
  append(words, agent_words(job));
  return words;
}

}  // namespace

std::vector<DeepspeedRequest::Command> remote_commands(
    const std::string& transport, const RemoteJob& job) {
  if (transport == "ssh") {
    return with_ssh(job);
  }
  const Words words = transport == "pdsh"      ? with_pdsh(job)
                      : transport == "openmpi" ? with_openmpi(job)
                      : transport == "slurm"   ? with_slurm(job)
                      : transport == "mvapich" ? with_mvapich(job)
                                               : with_hydra(job);
  return {{transport, words, transport == "pdsh" ? Environment() : with_secret(job), ""}};
}

std::string HandedOver::line() const {
  const nlohmann::json object{{"secret", secret}, {"environment", environment}};
  return object.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

HandedOver HandedOver::read(int descriptor) {
  constexpr size_t kLongest = size_t{1} << 20;
  std::string text;
  char byte = 0;
  while (text.size() < kLongest && ::read(descriptor, &byte, 1) == 1 && byte != '\n') {
    text += byte;
  }
  if (byte != '\n') {
    throw Error(ErrorKind::kEnvironment, "the launcher that started this agent is gone");
  }
  const nlohmann::json object =
      parse_json(text, "the launcher's settings on stdin", ErrorKind::kEnvironment);
  return {object.at("secret").get<std::string>(), object.at("environment").get<Environment>()};
}

}  // namespace lockstep::launch
