// The table of the deepspeed launcher's options.
#include "launch/frontends/deepspeed.h"

namespace lockstep::launch {
namespace {

constexpr OptionSpec kDeepspeedOptions[] = {
    {"hostfile", kValue, "/job/hostfile", "HOST slots=N lines; missing: this machine alone", 'H'},
    {"include", kValue, "", "NODE[:SLOT,...]@... to use", 'i'},
    {"exclude", kValue, "", "NODE[:SLOT,...]@... to leave out", 'e'},
    {"num-nodes", kValue, "-1", "the first N hosts of the hostfile"},
    {"num-gpus", kValue, "-1", "GPUs 0 to N-1 of each host"},
    {"num-accelerators", kValue, "-1", "the same as --num_gpus"},
    {"master-port", kValue, "29500", "port of the first host"},
    {"master-addr", kValue, "", "address of the first host"},
    {"node-rank", kValue, "-1", "number of this host, with --no_ssh"},
    {"launcher", kValue, "pdsh", "pdsh, ssh, openmpi, mvapich, slurm, mpich, impi"},
    {"launcher-args", kValue, "", "arguments for the launcher, as one quoted text"},
    {"module", kFlag, "", "run the program as a Python module"},
    {"no-python", kFlag, "", "run the program directly"},
    {"no-local-rank", kFlag, "", "no --local_rank argument for the program"},
    {"no-ssh", kFlag, "", "every host is started by hand, with its --node_rank"},
    {"no-ssh-check", kFlag, "", "accepted: hosts are not tried beforehand"},
    {"force-multi", kFlag, "", "use the transport for one host too"},
    {"save-pid", kFlag, "", "write /tmp/<pid>.deepspeed"},
    {"enable-each-rank-log", kValue, "", "folder of <time>_rank<R>.log"},
    {"autotuning", kValue, "", "use `lockstep plan --apply`"},
    {"bind-cores-to-rank", kFlag, "", "each worker gets its share of the cores"},
    {"bind-core-list", kValue, "", "of these cores: 0-7,16"},
    {"ssh-port", kValue, "", "port of ssh"},
    {"venv-script", kValue, "", "a script that remote hosts source first"},
    {"log-level", kValue, "info", "", 0, "debug|info|warning|error|critical"},
    {"quiet", kFlag, "", "errors only", 'q'},
    {"elastic-training", kFlag, "", "between --min_elastic_nodes and --max_elastic_nodes"},
    {"min-elastic-nodes", kValue, "-1", ""},
    {"max-elastic-nodes", kValue, "-1", ""},
    {"rdzv-secret-file", kValue, "", "a file of mode 0600 that all hosts have"},
    {"rdzv-insecure", kFlag, "", "hosts meet without a secret"},
    {"world-info", kValue, "", "of the launcher itself: the hosts of the job"},
    {"watch-stdin", kFlag, "", "of the launcher itself: end when stdin is closed"},
    {"read-stdin", kFlag, "", "of the launcher itself: the secret and variables come on stdin"},
    {"compat",
     kValue,
     "",
     "read the options as this launcher does",
     0,
     "torchrun|accelerate|deepspeed|torch.distributed.launch"},
    {"help", kFlag, "", "this text", 'h'},
};

}  // namespace

std::span<const OptionSpec> deepspeed_options() {
  return kDeepspeedOptions;
}

OptionRules deepspeed_rules() {
  return {"lockstep launch --compat deepspeed", true, ""};
}

}  // namespace lockstep::launch
