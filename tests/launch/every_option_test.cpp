// Tests every option of every supported launcher once: the option changes the started job, is
// refused, or is documented to have no effect. An option that is added to a table but not handled
// fails here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "launch/frontends/accelerate.h"
#include "launch/frontends/compat.h"
#include "launch/frontends/deepspeed.h"
#include "launch/frontends/torchrun.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace every_option_test {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

const Environment kNothing{
    {"HOME", "/nonexistent"}, {"PYTHON_EXEC", "py"}, {"CUDA_VISIBLE_DEVICES", ""}};

std::string text_of(const StdSpec& spec) {
  std::string text;
  for (int rank = 0; rank < 4; ++rank) {
    text += fmt::format("{}{} ", spec.of(rank).output, spec.of(rank).error_output);
  }
  return text;
}

/// Formats a plan without its random id.
std::string text_of(const LaunchPlan& plan) {
  const RendezvousPoint& rendezvous = plan.rendezvous;
  std::string text = fmt::format(
      "{} {} {} at {} nodes {}-{} workers {} role {} restarts {} in {}\n",
      fmt::join(plan.argv, " "),
      plan.name,
      plan.local_rank_argument,
      plan.argument_at,
      plan.min_nodes,
      plan.max_nodes,
      plan.workers,
      plan.role,
      plan.restarts.most,
      plan.restarts.window.count());
  text += fmt::format(
      "meeting {} {}:{} rank {} host {} local {} secret {} insecure {} {} {} {} store {} id {}\n",
      static_cast<int>(rendezvous.kind),
      rendezvous.host,
      rendezvous.port,
      rendezvous.node_rank,
      rendezvous.is_host.has_value(),
      rendezvous.local_address,
      rendezvous.secret,
      rendezvous.insecure,
      rendezvous.join_timeout.count(),
      rendezvous.last_call.count(),
      rendezvous.heartbeat_timeout.count(),
      rendezvous.store_port,
      rendezvous.kind == RendezvousPoint::Kind::kLocal ? "" : plan.run_id);
  text += fmt::format(
      "log {} {} redirects {} tee {} shown {} prefix {} needles {} {} ranks {}\n",
      plan.log.folder.string(),
      plan.log.no_files,
      text_of(plan.log.redirects),
      text_of(plan.log.tee),
      fmt::join(plan.log.shown_ranks, ","),
      plan.log.prefix,
      fmt::join(plan.log.output_needles, ","),
      fmt::join(plan.log.error_needles, ","),
      plan.log.rank_log_folder.string());
  text += fmt::format(
      "signals {} timeout {} virtual {} code {} plain {} stdin {} pid {} numa {} events {} level "
      "{}\n",
      fmt::join(plan.signals, ","),
      plan.shutdown_timeout.value_or(std::chrono::milliseconds(-1)).count(),
      plan.virtual_local_rank,
      plan.propagate_exit_code,
      plan.plain,
      plan.watch_stdin,
      plan.pid_file,
      plan.numa_binding,
      plan.event_log,
      static_cast<int>(plan.log_level));
  for (const std::vector<int>& cores : plan.cpus) {
    text += fmt::format("cpus {}\n", fmt::join(cores, ","));
  }
  for (const auto& [name, value] : plan.environment) {
    text += fmt::format("{}={}\n", name, value);
  }
  return text + fmt::format("notes {}", fmt::join(plan.notes, "\n"));
}

/// An option and the other arguments that it is tested with.
struct Given {
  const char* name;  // as in the table
  Words words;
  Words beside = {};
  const char* refused = "";  // fragment of the problem if the option is refused
};

/// An option without effect, and a fragment of its help that says so.
struct Idle {
  const char* name;
  Words words;
  const char* help;
};

class EveryOption : public ::testing::Test {
 protected:
  EveryOption() {
    write_file_atomically(folder_.path() / "hosts", "n1 slots=2\nn2 slots=2\n");
    write_file_atomically(folder_.path() / "secret", "0123456789abcdef\n");
    std::filesystem::permissions(folder_.path() / "secret", std::filesystem::perms(0600));
    write_file_atomically(
        folder_.path() / "config.yaml", "distributed_type: MULTI_CPU\nnum_processes: 3\n");
  }

  Words resolved(Words words, const Words& beside) const {
    words.insert(words.begin(), beside.begin(), beside.end());
    for (std::string& word : words) {
      if (const size_t at = word.find('@'); at != std::string::npos) {
        word.replace(at, 1, folder_.path().string() + "/");
      }
    }
    words.emplace_back("train.py");
    return words;
  }

  /// Returns the started job as text, or the problem.
  template <class Plan>
  std::string outcome(const Plan& plan, const Words& words, const Words& beside) const {
    try {
      return plan(resolved(words, beside));
    } catch (const Error& error) {
      return fmt::format("refused: {}", error.what());
    }
  }

  template <class Plan>
  void expect_all(
      std::span<const OptionSpec> table,
      const std::vector<Given>& given,
      const std::vector<Idle>& idle,
      const Plan& plan) const {
    std::map<std::string, const OptionSpec*> left;
    for (const OptionSpec& option : table) {
      left[option.name] = &option;
    }
    for (const char* of_ours : {"help", "compat", "print-completion"}) {
      left.erase(of_ours);  // handled by compat.cpp
    }
    for (const Given& one : given) {
      const std::string with = outcome(plan, one.words, one.beside);
      const std::string without = outcome(plan, {}, one.beside);
      EXPECT_THAT(without, Not(HasSubstr("refused: "))) << one.name;
      if (*one.refused != '\0') {
        EXPECT_THAT(with, AllOf(HasSubstr("refused: "), HasSubstr(one.refused))) << one.name;
      } else {
        EXPECT_THAT(with, Not(HasSubstr("refused: "))) << one.name;
        EXPECT_NE(with, without) << "--" << one.name << " is ignored";
      }
      left.erase(one.name);
    }
    for (const Idle& one : idle) {
      ASSERT_TRUE(left.contains(one.name)) << one.name;
      EXPECT_THAT(left.at(one.name)->help, HasSubstr(one.help)) << one.name;
      EXPECT_EQ(outcome(plan, one.words, {}), outcome(plan, {}, {})) << one.name;
      left.erase(one.name);
    }
    for (const auto& [name, option] : left) {
      ADD_FAILURE() << "--" << name << " is in no table of this test";
    }
  }

  TemporaryFolder folder_;
};

TEST_F(EveryOption, OfTorchrun) {
  const Words two = {"--nnodes=2", "--rdzv-insecure"};
  const Words dynamic = {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-insecure"};
  const std::vector<Given> given = {
      {"nnodes", {"--nnodes=3"}, {"--master-port=1", "--rdzv-insecure"}},
      {"nproc-per-node", {"--nproc-per-node=3"}},
      {"rdzv-backend", {"--rdzv-backend=c10d"}, two},
      {"rdzv-backend", {"--rdzv-backend=etcd-v2"}, two, "use static or c10d"},
      {"rdzv-endpoint", {"--rdzv-endpoint=h:5"}, dynamic},
      {"rdzv-id", {"--rdzv-id=job"}, dynamic},
      {"rdzv-conf", {"--rdzv-conf=join_timeout=9"}},
      {"rdzv-secret-file", {"--rdzv-secret-file=@secret"}},
      {"rdzv-insecure", {"--rdzv-insecure"}},
      {"standalone", {"--standalone"}, two},
      {"max-restarts", {"--max-restarts=2"}},
      {"restart-window", {"--restart-window=60"}},
      {"event-log-handler", {"--event-log-handler=console"}},
      {"event-log-handler", {"--event-log-handler=kafka"}, {}, "null, console or jsonl:PATH"},
      {"role", {"--role=trainer"}},
      {"module", {"-m"}},
      {"no-python", {"--no-python"}},
      {"run-path", {"--run-path"}},
      {"log-dir", {"--log-dir=logs"}},
      {"redirects", {"-r", "3"}},
      {"tee", {"-t", "1:2"}},
      {"log-line-prefix-template", {"--log-line-prefix-template=${rank}"}},
      {"local-ranks-filter", {"--local-ranks-filter=0"}},
      {"local-ranks-filter", {"--local-ranks-filter=0,x"}, {}, "--local-ranks-filter"},
      {"duplicate-stdout-filters", {"--duplicate-stdout-filters=a,b"}},
      {"duplicate-stderr-filters", {"--duplicate-stderr-filters=a"}},
      {"node-rank", {"--node-rank=1"}, two},
      {"node-rank", {"--node-rank=2"}, two, "use 0 to 1"},
      {"master-addr", {"--master-addr=h"}, two},
      {"master-port", {"--master-port=77"}, two},
      {"local-addr", {"--local-addr=10.0.0.2"}},
      {"logs-specs", {"--logs-specs=mine"}, {}, "names a Python plug-in"},
      {"numa-binding", {"--numa-binding=socket"}},
      {"numa-binding", {"--numa-binding=far"}, {}, "--numa-binding far"},
      {"signals-to-handle", {"--signals-to-handle=SIGTERM"}},
      {"signals-to-handle", {"--signals-to-handle=SIGNONE"}, {}, "SIGNONE"},
      {"shutdown-timeout", {"--shutdown-timeout=5"}},
      {"virtual-local-rank", {"--virtual-local-rank"}},
      {"propagate-exit-code", {"--propagate-exit-code"}},
  };
  const std::vector<Idle> idle = {
      {"monitor-interval",
       {"--monitor-interval=3"},
       "accepted; the end of a worker is detected at once"},
      {"start-method", {"--start-method=fork"}, "accepted; programs are always executed"},
      {"use-env", {"--use-env"}, "torch.distributed.launch only"},
  };
  expect_all(torchrun_options(), given, idle, [](const Words& words) {
    return text_of(plan_torchrun(words, kNothing));
  });
  const auto launch = [](const Words& words) {
    return text_of(plan_torchrun(words, kNothing, /*distributed_launch=*/true));
  };
  EXPECT_THAT(outcome(launch, {}, {}), HasSubstr("--local-rank={}"));
  EXPECT_THAT(outcome(launch, {"--use-env"}, {}), Not(HasSubstr("--local-rank={}")));
  EXPECT_THAT(outcome(launch, {"--no-python"}, {}), HasSubstr("requires --use-env"));
}

TEST_F(EveryOption, OfDeepspeed) {
  const Words hosts = {"--hostfile=@hosts", "--launcher=ssh"};
  const Words node = {"--hostfile=@hosts", "--no_ssh", "--node_rank=1", "--rdzv_insecure"};
  const std::vector<Given> given = {
      {"hostfile", {"--hostfile=@hosts"}, {"--launcher=ssh"}},
      {"include", {"--include=n1"}, hosts},
      {"exclude", {"--exclude=n1:0"}, hosts},
      {"exclude", {"--exclude=n1"}, {"--hostfile=@hosts", "--include=n2"}, "mutually exclusive"},
      {"num-nodes", {"--num_nodes=1"}, hosts},
      {"num-nodes", {"--num_nodes=3"}, hosts, "exceeds the 2 hosts"},
      {"num-nodes", {"--num_nodes=0"}, {}, "must be at least 1"},
      {"num-gpus", {"--num_gpus=3"}},
      {"num-accelerators", {"--num_accelerators=3"}},
      {"master-port", {"--master_port=77"}},
      {"master-addr", {"--master_addr=h"}, node},
      {"node-rank", {"--node_rank=0"}, node},
      {"node-rank", {"--node_rank=2"}, node, "--node_rank 2 is out of range for 2 hosts"},
      {"launcher", {"--launcher=slurm"}, hosts},
      {"launcher", {"--launcher=rsh"}, {}, "must be one of pdsh, ssh, openmpi"},
      {"launcher-args", {"--launcher_args=-o X=y"}, hosts},
      {"module", {"--module"}},
      {"no-python", {"--no_python"}},
      {"no-python", {"--no_python"}, {"--module"}, "mutually exclusive"},
      {"no-local-rank", {"--no_local_rank"}},
      {"no-ssh", {"--no_ssh", "--node_rank=0", "--rdzv_insecure"}, hosts},
      {"force-multi", {"--force_multi"}, {"--hostfile=@hosts", "--num_nodes=1", "--launcher=ssh"}},
      {"save-pid", {"--save_pid"}},
      {"enable-each-rank-log", {"--enable_each_rank_log=logs"}},
      {"autotuning", {"--autotuning=run"}, {}, "lockstep plan --apply"},
      {"bind-cores-to-rank", {"--bind_cores_to_rank"}},
      {"bind-core-list", {"--bind_core_list=0-3"}},
      {"bind-core-list", {"--bind_core_list=x"}, {}, "not a list such as 0-7,16"},
      {"bind-core-list", {"--bind_core_list=0"}, {"--num_gpus=2"}, "1 cores are too few for 2"},
      {"ssh-port", {"--ssh_port=2222"}, hosts},
      {"venv-script", {"--venv_script=/v/activate"}, hosts},
      {"log-level", {"--log_level=debug"}},
      {"log-level", {"--log_level=loud"}, {}, "--log-level loud"},
      {"quiet", {"-q"}},
      {"elastic-training", {"--elastic_training"}, node},
      {"min-elastic-nodes",
       {"--min_elastic_nodes=2"},
       {"--hostfile=@hosts", "--no_ssh", "--node_rank=1", "--rdzv_insecure", "--elastic_training"}},
      {"max-elastic-nodes",
       {"--max_elastic_nodes=5"},
       {"--hostfile=@hosts", "--no_ssh", "--node_rank=1", "--rdzv_insecure", "--elastic_training"}},
      {"max-elastic-nodes",
       {"--max_elastic_nodes=1"},
       {"--hostfile=@hosts",
        "--no_ssh",
        "--node_rank=1",
        "--rdzv_insecure",
        "--elastic_training",
        "--min_elastic_nodes=2"},
       "--min_elastic_nodes 2 exceeds --max_elastic_nodes 1"},
      {"rdzv-secret-file", {"--rdzv_secret_file=@secret"}},
      {"rdzv-insecure", {"--rdzv_insecure"}},
      {"world-info", {"--world_info=x"}, {}, "world"},
      {"watch-stdin", {"--watch_stdin"}},
  };
  const std::vector<Idle> idle = {
      {"no-ssh-check", {"--no_ssh_check"}, "accepted; hosts are not checked beforehand"},
  };
  std::vector<OptionSpec> table(deepspeed_options().begin(), deepspeed_options().end());
  std::erase_if(table, [](const OptionSpec& option) {
    return std::string(option.name) ==
           "read-stdin";  // tested by the program tests, because it reads this process's stdin
  });
  expect_all(table, given, idle, [](const Words& words) {
    const DeepspeedRequest request = plan_deepspeed(words, kNothing);
    std::string text = request.commands.empty() ? text_of(request.plan) : "";
    for (const DeepspeedRequest::Command& command : request.commands) {
      text += fmt::format("{}: {}\n", command.host, fmt::join(command.argv, " "));
    }
    return text;
  });
}

/// Options that are passed to the workers as variables, with the option that enables each group.
std::vector<Given> handed_on() {
  const std::vector<std::pair<std::string, Words>> groups = {
      {"fsdp-", {"--use_fsdp", "--num_processes=2"}},
      {"megatron-lm-", {"--use_megatron_lm", "--num_processes=2"}},
      {"parallelism-config-",
       {"--use_fsdp", "--fsdp_version=2", "--use_parallelism_config", "--num_processes=2"}},
      {"fp8-", {"--mixed_precision=fp8"}},
  };
  std::vector<Given> all;
  for (const OptionSpec& option : accelerate_options()) {
    for (const auto& [group, beside] : groups) {
      const std::string name = option.name;
      if (!name.starts_with(group)) {
        continue;
      }
      // Any value except the default.
      std::string value = "7";
      for (const std::string& choice : split(option.choices, '|')) {
        if (choice != option.fallback) {
          value = choice;
        }
      }
      if (name == "fsdp-sync-module-states") {
        all.push_back(
            {option.name, {"--" + name + "=false"}, beside, "requires --fsdp-sync-module-states"});
        continue;
      }
      if (value == "True" || value == "False") {  // in either spelling
        value = std::string(option.fallback) == "true" ? "false" : "true";
      }
      all.push_back(
          {option.name, {option.kind == kFlag ? "--" + name : "--" + name + "=" + value}, beside});
    }
  }
  return all;
}

TEST_F(EveryOption, OfAccelerate) {
  const Words two = {
      "--num_machines=2", "--num_processes=4", "--main_process_ip=h", "--rdzv_insecure"};
  const Words ds = {"--use_deepspeed", "--num_processes=2"};
  const Words ds_hosts = {
      "--use_deepspeed",
      "--num_machines=2",
      "--num_processes=4",
      "--main_process_ip=h",
      "--rdzv_insecure",
      "--deepspeed_hostfile=@hosts"};
  std::vector<Given> given = handed_on();
  const std::vector<Given> others = {
      {"config-file", {"--config_file=@config.yaml"}},
      {"quiet", {"-q"}},
      {"cpu", {"--cpu"}},
      {"multi-gpu", {"--multi_gpu"}, {}, "requires --num-processes of at least 2"},
      {"tpu", {"--tpu"}, {}, "--tpu is not supported"},
      {"use-deepspeed", {"--use_deepspeed"}},
      {"use-fsdp", {"--use_fsdp"}},
      {"use-megatron-lm", {"--use_megatron_lm"}},
      {"use-parallelism-config", {"--use_parallelism_config"}, {"--use_fsdp", "--fsdp_version=2"}},
      {"use-parallelism-config", {"--use_parallelism_config"}, {"--use_fsdp"}, "--fsdp-version 2"},
      {"mixed-precision", {"--mixed_precision=bf16"}},
      {"mixed-precision", {"--mixed_precision=fp64"}, {}, "--mixed-precision fp64"},
      {"num-processes", {"--num_processes=3"}},
      {"num-machines", {"--num_machines=4"}, two},
      {"machine-rank", {"--machine_rank=1"}, two},
      {"machine-rank",
       {"--machine_rank=2"},
       two,
       "--machine-rank 2 is out of range for 2 machines"},
      {"num-cpu-threads-per-process", {"--num_cpu_threads_per_process=3"}},
      {"num-cpu-threads-per-process",
       {"--num_cpu_threads_per_process=x"},
       {},
       "--num-cpu-threads-per-process x"},
      {"enable-cpu-affinity", {"--enable_cpu_affinity"}},
      {"gpu-ids", {"--gpu_ids=1,2"}},
      {"main-process-ip", {"--main_process_ip=other"}, two},
      {"main-process-port", {"--main_process_port=77"}, two},
      {"debug", {"--debug"}},
      {"module", {"-m"}},
      {"no-python", {"--no_python"}},
      {"no-python", {"--no_python"}, {"-m"}, "mutually exclusive"},
      {"tee", {"--tee=3"}},
      {"log-dir", {"--log_dir=logs"}},
      {"role", {"--role=trainer"}},
      {"rdzv-backend", {"--rdzv_backend=c10d"}, two},
      {"rdzv-backend", {"--rdzv_backend=etcd"}, two, "--rdzv-backend etcd"},
      {"rdzv-conf", {"--rdzv_conf=join_timeout=9"}, two},
      {"rdzv-conf", {"--rdzv_conf=join_timeut=9"}, {}, "Did you mean 'join_timeout'?"},
      {"rdzv-secret-file", {"--rdzv_secret_file=@secret"}},
      {"rdzv-insecure", {"--rdzv_insecure"}},
      {"max-restarts", {"--max_restarts=2"}},
      {"monitor-interval", {"--monitor_interval=x"}, {}, "--monitor-interval x"},
      {"dynamo-backend", {"--dynamo_backend=inductor"}},
      {"dynamo-mode", {"--dynamo_mode=max-autotune"}},
      {"dynamo-use-fullgraph", {"--dynamo_use_fullgraph"}},
      {"dynamo-use-dynamic", {"--dynamo_use_dynamic"}},
      {"dynamo-use-regional-compilation", {"--dynamo_use_regional_compilation"}},
      {"mpirun-hostfile", {"--mpirun_hostfile=@hosts"}, two},
      {"deepspeed-config-file", {"--deepspeed_config_file=ds.json"}, ds},
      {"zero-stage", {"--zero_stage=3"}, ds},
      {"zero-stage", {"--zero_stage=4"}, ds, "--zero-stage 4"},
      {"offload-optimizer-device", {"--offload_optimizer_device=cpu"}, ds},
      {"offload-param-device", {"--offload_param_device=nvme"}, ds},
      {"offload-optimizer-nvme-path", {"--offload_optimizer_nvme_path=/ssd"}, ds},
      {"offload-param-nvme-path", {"--offload_param_nvme_path=/ssd"}, ds},
      {"gradient-accumulation-steps", {"--gradient_accumulation_steps=4"}, ds},
      {"gradient-clipping", {"--gradient_clipping=0.5"}, ds},
      {"zero3-init-flag", {"--zero3_init_flag=False"}, ds},
      {"zero3-save-16bit-model", {"--zero3_save_16bit_model=True"}, ds},
      {"deepspeed-moe-layer-cls-names", {"--deepspeed_moe_layer_cls_names=Block"}, ds},
      {"deepspeed-hostfile",
       {"--deepspeed_hostfile=@hosts"},
       {"--use_deepspeed",
        "--num_machines=2",
        "--num_processes=4",
        "--main_process_ip=h",
        "--rdzv_insecure"}},
      {"deepspeed-exclusion-filter", {"--deepspeed_exclusion_filter=n1:0"}, ds_hosts},
      {"deepspeed-inclusion-filter", {"--deepspeed_inclusion_filter=n1"}, ds_hosts},
      {"deepspeed-multinode-launcher", {"--deepspeed_multinode_launcher=nossh"}, ds_hosts},
      {"aws-access-key-id", {"--aws_access_key_id=x"}, {}, "is not supported"},
      {"aws-secret-access-key", {"--aws_secret_access_key=x"}, {}, "is not supported"},
      {"tpu-use-cluster", {"--tpu_use_cluster"}, {}, "is not supported"},
      {"tpu-use-sudo", {"--tpu_use_sudo"}, {}, "is not supported"},
      {"vm", {"--vm=x"}, {}, "is not supported"},
      {"env", {"--env=x"}, {}, "is not supported"},
      {"main-training-function", {"--main_training_function=f"}, {}, "is not supported"},
      {"downcast-bf16", {"--downcast_bf16"}, {}, "is not supported"},
  };
  given.insert(given.end(), others.begin(), others.end());
  const std::vector<Idle> idle = {
      {"same-network", {"--same_network"}, "use main_process_ip as the rendezvous address"},
  };
  expect_all(accelerate_options(), given, idle, [](const Words& words) {
    const AccelerateRequest request = plan_accelerate(words, kNothing);
    return text_of(request.plan) + fmt::format("\n{}", fmt::join(request.deepspeed, " "));
  });
}

}  // namespace every_option_test
}  // namespace lockstep::launch
