// Tests of the files in deploy/kubernetes: their structure matches what the operators and the
// launcher document. The tests use neither the operators' schemas nor a cluster.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "base/error.h"

namespace lockstep::start {
namespace deploy_test {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

YAML::Node read(const std::string& name) {
  return YAML::LoadFile(std::string(LOCKSTEP_SOURCE_DIR "/deploy/kubernetes/") + name + ".yaml");
}

std::vector<std::string> names(const YAML::Node& list, const char* key = "name") {
  std::vector<std::string> found;
  for (const YAML::Node& entry : list) {
    found.push_back(entry[key].as<std::string>());
  }
  return found;
}

/// Every pod has no privileges, a read-only root, writable folders, and time to save.
void check_pod(const YAML::Node& pod) {
  EXPECT_GE(pod["terminationGracePeriodSeconds"].as<int>(), 60);
  EXPECT_TRUE(pod["securityContext"]["runAsNonRoot"].as<bool>());
  EXPECT_EQ(pod["securityContext"]["seccompProfile"]["type"].as<std::string>(), "RuntimeDefault");
  ASSERT_EQ(pod["containers"].size(), 1U);
  const YAML::Node container = pod["containers"][0];
  EXPECT_TRUE(container["securityContext"]["readOnlyRootFilesystem"].as<bool>());
  EXPECT_FALSE(container["securityContext"]["allowPrivilegeEscalation"].as<bool>());
  EXPECT_THAT(
      names(container["volumeMounts"], "mountPath"), ElementsAre("/work", "/tmp", "/dev/shm"));
  EXPECT_EQ(names(container["volumeMounts"]), names(pod["volumes"]));
  EXPECT_EQ(pod["volumes"][2]["emptyDir"]["medium"].as<std::string>(), "Memory");
  const std::vector<std::string> variables = names(container["env"]);
  EXPECT_THAT(variables, IsSupersetOf({"LOCKSTEP_RDZV_SECRET"}));
  for (const std::string& variable : variables) {  // the operator refuses these variables
    EXPECT_EQ(
        std::set<std::string>({"PET_NNODES",
                               "PET_NPROC_PER_NODE",
                               "PET_NODE_RANK",
                               "PET_MASTER_ADDR",
                               "PET_MASTER_PORT"})
            .count(variable),
        0U)
        << variable;
  }
}

/// Probes use the agent's endpoint: the pod's address and the port in its variable.
void check_probes(const YAML::Node& container) {
  int port = 0;
  for (const YAML::Node& variable : container["env"]) {
    port = variable["name"].as<std::string>() == "TORCHELASTIC_HEALTH_CHECK_PORT"
               ? variable["value"].as<int>()
               : port;
  }
  EXPECT_EQ(container["ports"][0]["containerPort"].as<int>(), port);
  for (const char* probe : {"readinessProbe", "livenessProbe"}) {
    EXPECT_EQ(
        container[probe]["httpGet"]["port"].as<std::string>(),
        container["ports"][0]["name"].as<std::string>());
  }
  EXPECT_EQ(container["readinessProbe"]["httpGet"]["path"].as<std::string>(), "/readyz");
  EXPECT_EQ(
      container["livenessProbe"]["httpGet"]["path"].as<std::string>().substr(0, 15),
      "/healthz?steps=");
}

/// Exit codes of errors that would recur end the job; no other code does.
void check_policies(const YAML::Node& set, const YAML::Node& job) {
  for (const YAML::Node& rule : set["failurePolicy"]["rules"]) {
    EXPECT_TRUE(rule["name"]) << "JobSet wants a name of each rule";
    EXPECT_EQ(rule["action"].as<std::string>(), "FailJobSet");
  }
  EXPECT_EQ(job["backoffLimit"].as<int>(), 0);
  const YAML::Node rules = job["podFailurePolicy"]["rules"];
  EXPECT_EQ(rules[0]["onPodConditions"][0]["type"].as<std::string>(), "DisruptionTarget");
  EXPECT_EQ(
      rules[1]["onExitCodes"]["containerName"].as<std::string>(),
      job["template"]["spec"]["containers"][0]["name"].as<std::string>());
  const auto codes = rules[1]["onExitCodes"]["values"].as<std::vector<int>>();
  EXPECT_THAT(codes, IsSupersetOf({exit_code(ErrorKind::kConfig), exit_code(ErrorKind::kNumeric)}));
  for (const int code : {0, kExitPreempted, exit_code(ErrorKind::kPeerLost), 137, 143}) {
    EXPECT_EQ(std::count(codes.begin(), codes.end(), code), 0) << code;
  }
}

TEST(Deploy, TheRuntimeOfTrainJobs) {
  const YAML::Node runtime = read("runtime");
  EXPECT_EQ(runtime["apiVersion"].as<std::string>(), "trainer.kubeflow.org/v1alpha1");
  EXPECT_EQ(runtime["kind"].as<std::string>(), "ClusterTrainingRuntime");
  EXPECT_TRUE(runtime["spec"]["mlPolicy"]["torch"].IsMap());
  const YAML::Node set = runtime["spec"]["template"]["spec"];
  const YAML::Node job = set["replicatedJobs"][0];
  // The operator finds the trainer by these two names.
  EXPECT_EQ(job["name"].as<std::string>(), "node");
  EXPECT_EQ(
      job["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"]
          .as<std::string>(),
      "trainer");
  check_policies(set, job["template"]["spec"]);
  const YAML::Node pod = job["template"]["spec"]["template"]["spec"];
  EXPECT_EQ(pod["restartPolicy"].as<std::string>(), "Never");  // required by podFailurePolicy
  check_pod(pod);
  check_probes(pod["containers"][0]);

  const YAML::Node run = read("trainjob");
  EXPECT_EQ(run["kind"].as<std::string>(), "TrainJob");
  EXPECT_EQ(
      run["spec"]["runtimeRef"]["name"].as<std::string>(),
      runtime["metadata"]["name"].as<std::string>());
  EXPECT_EQ(run["spec"]["trainer"]["command"][1].as<std::string>(), "launch");
}

TEST(Deploy, JobSetByItself) {
  const YAML::Node set = read("jobset");
  EXPECT_EQ(set["apiVersion"].as<std::string>(), "jobset.x-k8s.io/v1alpha2");
  const YAML::Node job = set["spec"]["replicatedJobs"][0]["template"]["spec"];
  EXPECT_EQ(job["completionMode"].as<std::string>(), "Indexed");
  EXPECT_EQ(job["completions"].as<int>(), job["parallelism"].as<int>());
  check_policies(set["spec"], job);
  const YAML::Node pod = job["template"]["spec"];
  check_pod(pod);
  check_probes(pod["containers"][0]);
  const auto words = pod["containers"][0]["command"].as<std::vector<std::string>>();
  EXPECT_THAT(
      words,
      IsSupersetOf(
          {"--nnodes=" + std::to_string(job["completions"].as<int>()),
           // <set>-<job>-<job index>-<pod>.<set>
           std::string("--master-addr=mine-node-0-0.mine")}));
}

TEST(Deploy, PyTorchJob) {
  const YAML::Node run = read("pytorchjob");
  EXPECT_EQ(run["apiVersion"].as<std::string>(), "kubeflow.org/v1");
  for (const char* role : {"Master", "Worker"}) {
    const YAML::Node replica = run["spec"]["pytorchReplicaSpecs"][role];
    EXPECT_EQ(replica["restartPolicy"].as<std::string>(), "OnFailure");
    const YAML::Node container = replica["template"]["spec"]["containers"][0];
    EXPECT_EQ(container["name"].as<std::string>(), "pytorch");
    const std::string first = "--master-addr=" + run["metadata"]["name"].as<std::string>();
    EXPECT_THAT(
        container["command"].as<std::vector<std::string>>(),
        IsSupersetOf(
            {std::string("--node-rank=$(RANK)"), std::string("--nnodes=2"), first + "-master-0"}));
    check_pod(replica["template"]["spec"]);
  }
  EXPECT_EQ(run["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"].as<int>(), 1);
}

}  // namespace deploy_test
}  // namespace lockstep::start
