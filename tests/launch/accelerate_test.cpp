// Tests of accelerate's command line and the choice of a front end.
#include "launch/frontends/accelerate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "launch/frontends/compat.h"
#include "temporary_folder.h"

namespace lockstep::launch {
namespace accelerate_test {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

const Environment kNothing{{"HOME", "/nonexistent"}, {"PYTHON_EXEC", "py"}};

class Accelerate : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const auto path = folder_.path() / "config.yaml";
    write_file_atomically(path, text);
    return path.string();
  }
  LaunchPlan plan(std::vector<std::string> arguments) {
    arguments.emplace_back("train.py");
    return plan_accelerate(arguments, kNothing).plan;
  }
  std::string problem(std::vector<std::string> arguments) {
    try {
      plan(std::move(arguments));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  TemporaryFolder folder_;
};

TEST_F(Accelerate, StartsOneProcessWithoutAConfiguration) {
  const LaunchPlan simple = plan({});
  EXPECT_TRUE(simple.plain);
  EXPECT_EQ(simple.workers, 1);
  EXPECT_THAT(simple.environment, Contains(Pair("ACCELERATE_MIXED_PRECISION", "no")));
  ASSERT_FALSE(simple.notes.empty());
  EXPECT_THAT(simple.notes[0], HasSubstr("num_processes=1, num_machines=1, mixed_precision=no"));
}

TEST_F(Accelerate, ReadsAWholeFileAndTheCommandLineBeatsIt) {
  const std::string path = write(R"(compute_environment: LOCAL_MACHINE
debug: true
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_sharding_strategy: HYBRID_SHARD
  offload_params: true
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
machine_rank: 1
main_process_ip: 10.0.0.1
main_process_port: 1234
main_training_function: main
mixed_precision: bf16
num_machines: 2
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
use_cpu: false
)");
  const LaunchPlan both =
      plan({"--config_file", path, "--mixed_precision", "no", "--machine-rank=0"});
  EXPECT_EQ(both.workers, 4);
  EXPECT_EQ(both.max_nodes, 2);
  EXPECT_EQ(both.rendezvous.kind, RendezvousPoint::Kind::kStatic);
  EXPECT_EQ(both.rendezvous.host, "10.0.0.1");
  EXPECT_EQ(both.rendezvous.port, 1234);
  EXPECT_EQ(both.rendezvous.node_rank, 0);
  for (const auto& [name, value] : Environment{
           {"ACCELERATE_USE_FSDP", "true"},
           {"FSDP_SHARDING_STRATEGY", "HYBRID_SHARD"},
           {"FSDP_OFFLOAD_PARAMS", "true"},
           {"FSDP_TRANSFORMER_CLS_TO_WRAP", "LlamaDecoderLayer"},
           {"FSDP_MIN_NUM_PARAMS", "100000000"},
           {"FSDP_VERSION", "1"},
           {"ACCELERATE_DEBUG_MODE", "true"},
           {"ACCELERATE_MIXED_PRECISION", "no"},
           {"FSDP_USE_ORIG_PARAMS", "true"}}) {
    EXPECT_THAT(both.environment, Contains(Pair(name, value)));
  }
}

TEST_F(Accelerate, UsesTheParallelismOfAFile) {
  const Environment sizes =
      plan({"--config_file",
            write("distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: 2\n"
                  "parallelism_config:\n  parallelism_config_cp_size: 2\n")})
          .environment;
  EXPECT_THAT(sizes, Contains(Pair("ACCELERATE_USE_PARALLELISM_CONFIG", "true")));
  EXPECT_THAT(sizes, Contains(Pair("PARALLELISM_CONFIG_CP_SIZE", "2")));
  EXPECT_THAT(sizes, Contains(Pair("PARALLELISM_CONFIG_TP_SIZE", "1")));
  const Environment none =
      plan({"--config_file", write("distributed_type: 'NO'\nparallelism_config: {}\n")})
          .environment;
  EXPECT_THAT(none, Not(Contains(Key("ACCELERATE_USE_PARALLELISM_CONFIG"))));
}

TEST_F(Accelerate, HandsDeepspeedsSettingsOn) {
  const LaunchPlan zero = plan(
      {"--use_deepspeed",
       "--num_processes=2",
       "--zero_stage=3",
       "--offload_optimizer_device",
       "cpu",
       "--gradient_accumulation_steps=4"});
  for (const auto& [name, value] : Environment{
           {"ACCELERATE_USE_DEEPSPEED", "true"},
           {"ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"},
           {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "cpu"},
           {"ACCELERATE_DEEPSPEED_ZERO3_INIT", "true"},
           {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"},
           {"ACCELERATE_GRADIENT_CLIPPING", "1.0"}}) {
    EXPECT_THAT(zero.environment, Contains(Pair(name, value)));
  }
  const LaunchPlan file = plan(
      {"--config_file",
       write("distributed_type: DEEPSPEED\nnum_processes: 2\n"
             "deepspeed_config:\n  deepspeed_config_file: ds.json\n")});
  EXPECT_THAT(file.environment, Contains(Pair("ACCELERATE_DEEPSPEED_CONFIG_FILE", "ds.json")));
  EXPECT_THAT(
      file.environment, Contains(Pair("ACCELERATE_CONFIG_DS_FIELDS", "deepspeed_config_file")));
  EXPECT_THAT(file.environment, Not(Contains(Key("ACCELERATE_DEEPSPEED_ZERO_STAGE"))));
}

TEST_F(Accelerate, TakesYamlsNoForThePrecision) {
  EXPECT_THAT(
      plan({"--config_file", write("distributed_type: 'NO'\nmixed_precision: no\n")}).environment,
      Contains(Pair("ACCELERATE_MIXED_PRECISION", "no")));
  EXPECT_THAT(
      plan({"--config_file", write("distributed_type: 'NO'\nfp16: true\n")}).environment,
      Contains(Pair("ACCELERATE_MIXED_PRECISION", "fp16")));
}

TEST_F(Accelerate, TellsWhatIsWrong) {
  EXPECT_THAT(
      problem({"--config_file", write("num_proceses: 2\n")}),
      HasSubstr("Did you mean 'num-processes'?"));
  EXPECT_THAT(
      problem({"--config_file", write("distributed_type: TPU\n")}),
      HasSubstr("distributed_type TPU"));
  EXPECT_THAT(
      problem({"--config_file", write("distributed_type: MULTI_GPU\nnum_processes: -1\n")}),
      HasSubstr("use --num_processes"));
  EXPECT_THAT(problem({"--num_proc", "2"}), HasSubstr("unknown option --num_proc"));
  EXPECT_THAT(
      problem({"--multi_gpu", "--cpu"}), HasSubstr("--cpu, --multi-gpu are mutually exclusive"));
  EXPECT_THAT(problem({"--multi_gpu", "--num_processes=1"}), HasSubstr("at least 2"));
  EXPECT_THAT(problem({"--tpu"}), HasSubstr("not supported"));
  EXPECT_THAT(problem({"--num_machines=2", "--num_processes=3"}), HasSubstr("is not divisible"));
  EXPECT_THAT(
      problem({"--use_fsdp", "--fsdp_sync_module_states=false"}),
      HasSubstr("requires --fsdp-sync-module-states"));
  EXPECT_THAT(problem({"--use_parallelism_config"}), HasSubstr("requires --use-fsdp"));
}

TEST(Compat, FollowsFromTheOptions) {
  EXPECT_EQ(surface_of({"x.py"}), Surface::kTorchrun);
  EXPECT_EQ(surface_of({"--nproc-per-node", "2", "x.py", "--num_gpus", "3"}), Surface::kTorchrun);
  EXPECT_EQ(surface_of({"--nproc", "2", "x.py"}), Surface::kTorchrun);
  EXPECT_EQ(surface_of({"--num_processes", "2", "x.py"}), Surface::kAccelerate);
  EXPECT_EQ(surface_of({"--num_gpus=2", "x.py"}), Surface::kDeepspeed);
  EXPECT_EQ(surface_of({"--include", "localhost:0", "x.py"}), Surface::kDeepspeed);
  EXPECT_EQ(
      surface_of({"--master_port", "3", "--compat", "deepspeed", "x.py"}), Surface::kDeepspeed);
  EXPECT_EQ(surface_of({"--compat=torch.distributed.launch", "x.py"}), Surface::kDistributedLaunch);
  EXPECT_EQ(surface_of({"x.py", "--compat", "deepspeed"}), Surface::kTorchrun);
  try {
    surface_of({"--num_gpus=2", "--nproc-per-node=2", "x.py"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("torchrun does not accept --num_gpus"));
    EXPECT_THAT(error.what(), HasSubstr("deepspeed does not accept --nproc-per-node"));
  }
}

TEST(Compat, PrintsHelpAndCompletionWithoutAProgram) {
  EXPECT_THAT(read_launch({"--help"}, kNothing).answer, HasSubstr("--nproc-per-node VALUE"));
  EXPECT_THAT(
      read_launch({"--compat", "deepspeed", "-h"}, kNothing).answer, HasSubstr("--hostfile VALUE"));
  EXPECT_THAT(
      read_launch({"--print-completion=bash"}, kNothing).answer, HasSubstr("complete -o default"));
  EXPECT_THROW(read_launch({}, kNothing), Error);
}

TEST(AccelerateLaunch, StartsTheMachinesOfMpirunsHostfile) {
  const TemporaryFolder folder;
  const std::string hosts = (folder.path() / "hosts").string();
  write_file_atomically(hosts, "n1 slots=2\nn2 slots=2\n");
  const AccelerateRequest request = plan_accelerate(
      {"--cpu",
       "--num_machines=2",
       "--num_processes=4",
       "--main_process_ip=n1",
       "--rdzv_insecure",
       "--mpirun_hostfile",
       hosts,
       "x.py"},
      {{"HOME", "/nonexistent"}});
  EXPECT_THAT(
      request.deepspeed,
      ::testing::IsSupersetOf({"--launcher", "openmpi", "--rdzv-insecure", "x.py"}));
}

}  // namespace accelerate_test
}  // namespace lockstep::launch
