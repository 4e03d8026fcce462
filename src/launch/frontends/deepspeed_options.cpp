// Table of the deepspeed launcher's options.
#include "launch/frontends/deepspeed.h"

namespace lockstep::launch {
namespace {

constexpr OptionSpec kDeepspeedOptions[] = {
    {"hostfile",
     kValue,
     "/job/hostfile",
     "file with lines HOST slots=N; if it does not exist, use this machine only",
     'H'},
    {"include", kValue, "", "NODE[:SLOT,...]@... to use", 'i'},
    {"exclude", kValue, "", "NODE[:SLOT,...]@... to exclude", 'e'},
    {"num-nodes", kValue, "-1", "use the first N hosts of the hostfile"},
    {"num-gpus", kValue, "-1", "use GPUs 0 to N-1 of each host"},
    {"num-accelerators", kValue, "-1", "same as --num_gpus"},
    {"master-port", kValue, "29500", "port of the first host"},
    {"master-addr", kValue, "", "address of the first host"},
    {"node-rank", kValue, "-1", "rank of this host, with --no_ssh"},
    {"launcher", kValue, "pdsh", "pdsh, ssh, openmpi, mvapich, slurm, mpich, impi"},
    {"launcher-args", kValue, "", "arguments for the launcher, as one quoted string"},
    {"module", kFlag, "", "run the program as a Python module"},
    {"no-python", kFlag, "", "run the program directly"},
    {"no-local-rank", kFlag, "", "do not pass --local_rank to the program"},
    {"no-ssh", kFlag, "", "hosts are started separately, each with its --node_rank"},
    {"no-ssh-check", kFlag, "", "accepted; hosts are not checked beforehand"},
    {"force-multi", kFlag, "", "use the launcher even for a single host"},
    {"save-pid", kFlag, "", "write /tmp/<pid>.deepspeed"},
    {"enable-each-rank-log", kValue, "", "folder for <time>_rank<R>.log"},
    {"autotuning", kValue, "", "not supported; use `lockstep plan --apply`"},
    {"bind-cores-to-rank", kFlag, "", "divide the cores among the workers"},
    {"bind-core-list", kValue, "", "cores to divide, such as 0-7,16"},
    {"ssh-port", kValue, "", "port of ssh"},
    {"venv-script", kValue, "", "script that remote hosts source first"},
    {"log-level", kValue, "info", "", 0, "debug|info|warning|error|critical"},
    {"quiet", kFlag, "", "print errors only", 'q'},
    {"elastic-training", kFlag, "", "allow --min_elastic_nodes to --max_elastic_nodes nodes"},
    {"min-elastic-nodes", kValue, "-1", ""},
    {"max-elastic-nodes", kValue, "-1", ""},
    {"rdzv-secret-file", kValue, "", "file of mode 0600 with the secret shared by all hosts"},
    {"rdzv-insecure", kFlag, "", "allow a rendezvous without a secret"},
    {"world-info", kValue, "", "internal: the hosts of the job"},
    {"watch-stdin", kFlag, "", "internal: end when stdin is closed"},
    {"read-stdin", kFlag, "", "internal: read the secret and variables from stdin"},
    {"compat",
     kValue,
     "",
     "parse the options as this launcher does",
     0,
     "torchrun|accelerate|deepspeed|torch.distributed.launch"},
    {"help", kFlag, "", "print this help", 'h'},
};

}  // namespace

std::span<const OptionSpec> deepspeed_options() {
  return kDeepspeedOptions;
}

OptionRules deepspeed_rules() {
  return {"lockstep launch --compat deepspeed", true, ""};
}

}  // namespace lockstep::launch
