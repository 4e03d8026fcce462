// Creates the engines' job files by inserting a run's values in the templates of deploy/.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/nearest.h"
#include "launch/plan/shell_words.h"
#include "start/submit.h"

namespace lockstep::start {
namespace {

std::vector<std::string> launched(const Submission& run) {
  std::vector<std::string> words{"train"};
  words.insert(words.end(), run.training.begin(), run.training.end());
  words.emplace_back("resume_from_checkpoint=true");
  return words;
}

std::string for_shell(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) {
    quoted.push_back(launch::shell_quote(word));
  }
  return fmt::format("{}", fmt::join(quoted, " "));
}

/// Quotes a string as JSON, which is valid in YAML and Python, too.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

std::string slurm_file(const Submission& run) {
  const std::string gpus =
      run.on_gpus ? fmt::format("#SBATCH --gpus-per-node={}\n", run.ranks_per_node) : "";
  const std::string secret =
      run.nodes == 1
          ? ""
          : "export PET_RDZV_SECRET_FILE=${PET_RDZV_SECRET_FILE:-$HOME/.lockstep-secret}\n"
            "[ -s \"$PET_RDZV_SECRET_FILE\" ] || (umask 077 && head -c 32 /dev/urandom | base64 "
            ">\"$PET_RDZV_SECRET_FILE\")\n";
  return fmt::format(
      R"(#!/bin/bash
# {}
# sbatch THIS_FILE; before the time limit and at a pre-emption the run saves, and goes back into the queue
#SBATCH --job-name={}
#SBATCH --nodes={} --ntasks-per-node=1 --cpus-per-task={}
{}#SBATCH --mem={}G --time={}
#SBATCH --requeue --open-mode=append --output=%x-%j.log
#SBATCH --signal=USR2@120
trap ended=yes TERM
{}srun --kill-on-bad-exit=0 lockstep launch --nproc-per-node {} --max-restarts 3 \
  {}
code=$?
if {{ [ "$code" -eq 75 ] || [ "$code" -eq 7 ]; }} && [ -z "${{ended:-}}" ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt 50 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
)",
      run.predicted,
      run.name,
      run.nodes,
      run.cpus_per_node,
      gpus,
      run.memory_per_node,
      run.time,
      secret,
      run.ranks_per_node,
      for_shell(launched(run)));
}

std::string kubernetes_file(const Submission& run) {
  std::string command;
  std::vector<std::string> words{"lockstep", "launch", "--max-restarts=3"};
  const std::vector<std::string> rest = launched(run);
  words.insert(words.end(), rest.begin(), rest.end());
  for (const std::string& word : words) {
    command += fmt::format("      - {}\n", quoted(word));
  }
  return fmt::format(
      R"(# {}
# kubectl create -f THIS_FILE; once before that, apply deploy/kubernetes/runtime.yaml (installed: in share/lockstep)
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {}
spec:
  runtimeRef:
    apiGroup: trainer.kubeflow.org
    kind: ClusterTrainingRuntime
    name: lockstep
  trainer:
    image: {}
    numNodes: {}
    numProcPerNode: {}
    resourcesPerNode:
      limits:
        cpu: {}
        memory: {}Gi
{}    command:
{})",
      run.predicted,
      quoted(run.name),
      quoted(run.image),
      run.nodes,
      run.ranks_per_node,
      run.cpus_per_node,
      run.memory_per_node,
      run.on_gpus ? fmt::format("        nvidia.com/gpu: {}\n", run.ranks_per_node) : "",
      command);
}

std::string ray_file(const Submission& run) {
  nlohmann::json resources{{"CPU", run.cpus_per_node}};
  if (run.on_gpus) {
    resources["GPU"] = run.ranks_per_node;
  }
  const std::string_view driver = ray_driver();
  return fmt::format(
      R"(# {}
# ray job submit --working-dir . -- python THIS_FILE
{}

if __name__ == "__main__":
    sys.exit(train(
        nodes={},
        ranks_per_node={},
        resources={},
        arguments={},
    ))
)",
      run.predicted,
      driver.substr(0, driver.find("\n\nif __name__")),
      run.nodes,
      run.ranks_per_node,
      resources.dump(),
      nlohmann::json(launched(run)).dump());
}

std::string ssh_file(const Submission& run) {
  if (std::ssize(run.hosts) != run.nodes) {
    throw Error(
        ErrorKind::kConfig,
        fmt::format("{} machines are required, and --hosts names {}", run.nodes, run.hosts.size()),
        "give --hosts first,second,... with one name per node");
  }
  std::string hosts;
  for (const std::string& host : run.hosts) {
    hosts += fmt::format("{} slots={}\n", host, run.ranks_per_node);
  }
  return fmt::format(
      R"(#!/bin/bash
# {}
# bash THIS_FILE, on a machine that reaches the others by ssh; all see this folder
set -euo pipefail
cat >hosts.{} <<'HOSTS'
{}HOSTS
exec lockstep launch --hostfile {} --launcher ssh \
  {}
)",
      run.predicted,
      run.name,
      hosts,
      launch::shell_quote("hosts." + run.name),
      for_shell(launched(run)));
}

constexpr Engine kEngines[] = {
    {"slurm", ".sbatch", {"sbatch"}, slurm_file},
    {"kubernetes", ".yaml", {"kubectl", "create", "-f"}, kubernetes_file},
    {"ray", ".py", {"ray", "job", "submit", "--working-dir", ".", "--", "python"}, ray_file},
    {"ssh", ".sh", {"bash"}, ssh_file},
};

}  // namespace

std::vector<std::string> engine_names() {
  std::vector<std::string> names;
  for (const Engine& engine : kEngines) {
    names.emplace_back(engine.name);
  }
  return names;
}

const Engine& find_engine(std::string_view name) {
  for (const Engine& engine : kEngines) {
    if (engine.name == name) {
      return engine;
    }
  }
  throw Error(
      ErrorKind::kConfig,
      fmt::format(
          "--on {}: unknown engine.{}", name, did_you_mean(std::string(name), engine_names())),
      fmt::format("one of {}", fmt::join(engine_names(), ", ")));
}

}  // namespace lockstep::start
