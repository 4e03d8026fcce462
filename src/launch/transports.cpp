#include "launch/transports.h"

#include "base/format.h"
#include "launch/shell_words.h"

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

// One text for a remote shell. `node` stands unquoted: pdsh puts its number in place of %n.
std::string shell_text(const RemoteJob& job, const std::string& node) {
  std::string text = "cd " + shell_quote(job.folder) + " && ";
  for (const auto& [name, value] : job.exported) {
    text += fmt::format("export {}={}; ", name, shell_quote(value));
  }
  if (!job.prepare.empty()) {
    text += ". " + shell_quote(job.prepare) + " && ";
  }
  // stdin tells the agent that the launcher is gone: an ssh that is killed closes it.
  return text + "exec " + quoted(job.before) + " --node_rank=" + node + " --watch_stdin " +
         quoted(job.after);
}

std::vector<DeepspeedRequest::Command> with_ssh(const RemoteJob& job) {
  std::vector<DeepspeedRequest::Command> commands;
  for (size_t node = 0; node < job.hosts.size(); ++node) {
    Words words{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"};
    if (!job.ssh_port.empty()) {
      append(words, {"-p", job.ssh_port});
    }
    append(words, job.transport_arguments);
    append(words, {"--", job.hosts[node].host, shell_text(job, std::to_string(node))});
    commands.push_back({job.hosts[node].host, words});
  }
  return commands;
}

Words with_pdsh(const RemoteJob& job) {
  Words words{"pdsh", "-S", "-f", "1024", "-R", "ssh"};
  append(words, job.transport_arguments);
  append(words, {"-w", fmt::format("{}", fmt::join(host_names(job), ",")), shell_text(job, "%n")});
  return words;
}

// The agent finds its number in the variables of MPI or SLURM: one task a machine.
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
  for (const auto& [name, value] : job.exported) {
    append(words, {"-x", name + "=" + value});
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
  for (const auto& [name, value] : job.exported) {
    append(words, {"-genv", name, value});
  }
  append(words, agent_words(job));
  return words;
}

Words with_mvapich(const RemoteJob& job) {
  Words words{"mpirun_rsh", "-np", std::to_string(job.hosts.size())};
  append(words, job.transport_arguments);
  append(words, host_names(job));
  for (const auto& [name, value] : job.exported) {
    words.push_back(name + "=" + value);
  }
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
  std::string exports = "--export=ALL";
  for (const auto& [name, value] : job.exported) {
    // A comma would end the value: such variables reach the tasks through ALL, from srun's own
    // environment.
    if (value.find(',') == std::string::npos) {
      exports += "," + name + "=" + value;
    }
  }
  words.push_back(exports);
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
  return {{transport, words}};
}

}  // namespace lockstep::launch
