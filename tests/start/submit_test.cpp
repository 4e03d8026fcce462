// Tests of the job files of `lockstep submit`.
#include "start/submit.h"

#include <array>
#include <cstdio>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "temporary_folder.h"

namespace lockstep::start {
namespace submit_test {

using ::testing::HasSubstr;
using ::testing::Not;

class Submit : public ::testing::Test {
 protected:
  Submit() {
    write_file_atomically(
        folder_.path() / "model.json",
        R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257,
            "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024})");
    write_file_atomically(
        folder_.path() / "job.yaml",
        fmt::format(
            "model: {{path: {}/model.json}}\ndata: {{train: it's.txt, sequence_length: 128}}\n"
            "training: {{output_dir: run, bf16: true}}\n",
            folder_.path().string()));
  }

  std::string job() const { return (folder_.path() / "job.yaml").string(); }

  std::string printed(const std::vector<std::string>& arguments) const {
    ::testing::internal::CaptureStdout();
    try {
      EXPECT_EQ(run_submit(arguments), 0);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    return ::testing::internal::GetCapturedStdout();
  }

  static std::string problem_of(const std::vector<std::string>& arguments) {
    try {
      run_submit(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "no error";
  }

  /// Checks a text as a file of `command` and returns its complaints; empty: the file is valid.
  std::string checked(const std::string& command, const std::string& text) const {
    const std::string file = (folder_.path() / "checked").string();
    write_file_atomically(file, text);
    FILE* pipe = ::popen((command + " " + file + " 2>&1").c_str(), "r");
    std::string told;
    std::array<char, 256> line{};
    while (std::fgets(line.data(), line.size(), pipe) != nullptr) {
      told += line.data();
    }
    return ::pclose(pipe) == 0 ? "" : told + "failed";
  }

  TemporaryFolder folder_;
};

TEST_F(Submit, SlurmGetsNodesGpusAndTheRequeue) {
  const std::string text = printed(
      {"--on",
       "slurm",
       "--nodes=3",
       "--ranks-per-node",
       "4",
       job(),
       "run_name='my run'",
       "seed=2"});
  EXPECT_EQ(checked("bash -n", text), "");
  EXPECT_THAT(text, HasSubstr("#SBATCH --nodes=3 --ntasks-per-node=1 --cpus-per-task=48\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --gpus-per-node=4\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --mem=20G --time=24:00:00\n"));
  EXPECT_THAT(text, HasSubstr("PET_RDZV_SECRET_FILE"));
  EXPECT_THAT(
      text,
      HasSubstr(fmt::format(
          "  train -c {} 'run_name='\\''my run'\\''' seed=2 resume_from_checkpoint=true\n",
          job())));
  EXPECT_THAT(text, HasSubstr("# planned: data 12"));
  // A single node needs no secret, and CPU ranks need no GPUs.
  const std::string alone =
      printed({"--on=slurm", "--nodes=1", "--ranks-per-node=2", job(), "use_cpu=true"});
  EXPECT_THAT(alone, Not(HasSubstr("SECRET")));
  EXPECT_THAT(alone, Not(HasSubstr("gpus")));
  EXPECT_THAT(alone, HasSubstr("--cpus-per-task=8"));
}

TEST_F(Submit, KubernetesGetsATrainJob) {
  const std::string text = printed(
      {"--on=kubernetes",
       "--name=my-run",
       "--image=registry/lockstep:2",
       "--nodes=2",
       "-c",
       job(),
       "run_name='a: \"b\"'"});
  const YAML::Node document = YAML::Load(text);
  EXPECT_EQ(document["kind"].as<std::string>(), "TrainJob");
  EXPECT_EQ(document["metadata"]["name"].as<std::string>(), "my-run");
  const YAML::Node trainer = document["spec"]["trainer"];
  EXPECT_EQ(trainer["numNodes"].as<int>(), 2);
  EXPECT_EQ(trainer["numProcPerNode"].as<int>(), 8);
  EXPECT_EQ(trainer["image"].as<std::string>(), "registry/lockstep:2");
  EXPECT_EQ(trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"].as<int>(), 8);
  EXPECT_EQ(
      trainer["command"].as<std::vector<std::string>>(),
      (std::vector<std::string>{
          "lockstep",
          "launch",
          "--max-restarts=3",
          "train",
          "-c",
          job(),
          "run_name='a: \"b\"'",
          "resume_from_checkpoint=true"}));
}

TEST_F(Submit, SizesOfParallelGiveTheNodes) {
  const std::string text =
      printed({"--on=slurm", job(), "parallel.tensor=2", "parallel.pipeline=2", "parallel.data=4"});
  EXPECT_THAT(text, HasSubstr("#SBATCH --nodes=2 --ntasks"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --gpus-per-node=8\n"));
  EXPECT_THAT(
      printed({"--on=slurm", job(), "parallel.tensor=2"}), HasSubstr("--gpus-per-node=2\n"));
}

TEST_F(Submit, RayGetsADriver) {
  const std::string text = printed({"--on=ray", "--nodes=2", "--ranks-per-node=1", job()});
  EXPECT_EQ(checked("python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())'", text), "");
  EXPECT_THAT(
      text, HasSubstr("    sys.exit(train(\n        nodes=2,\n        ranks_per_node=1,\n"));
  EXPECT_THAT(text, HasSubstr(R"(resources={"CPU":12,"GPU":1},)"));
}

TEST_F(Submit, SshGetsAHostfile) {
  const std::string text =
      printed({"--on=ssh", "--nodes=2", "--ranks-per-node=8", "--hosts", "a,b", job()});
  EXPECT_EQ(checked("bash -n", text), "");
  EXPECT_THAT(text, HasSubstr("a slots=8\nb slots=8\nHOSTS\n"));
  EXPECT_THAT(
      problem_of({"--on=ssh", "--nodes=2", "--hosts=a", job()}), HasSubstr("--hosts names 1"));
}

TEST_F(Submit, SaysWhatIsWrong) {
  EXPECT_THAT(problem_of({job()}), HasSubstr("--on is required"));
  EXPECT_THAT(problem_of({"--on=slrum", job()}), HasSubstr("Did you mean 'slurm'"));
  EXPECT_THAT(problem_of({"--on=slurm", "--name=My Run", job()}), HasSubstr("--name My Run"));
  EXPECT_THAT(problem_of({"--on=slurm", job(), "sede=1"}), HasSubstr("sede"));
  EXPECT_THAT(problem_of({"--on=slurm", "output_dir=x"}), HasSubstr("data.train"));
  const std::string misfit = problem_of(
      {"--on=slurm",
       "--nodes=1",
       "--ranks-per-node=1",
       "--gpu=v100-16gb",
       job(),
       "model.path=null",
       "model.preset=gpt2-xl",
       "data.sequence_length=1024"});
  EXPECT_THAT(misfit, HasSubstr("on the fullest of 1 ranks"));
  EXPECT_THAT(misfit, HasSubstr("devices would suffice"));
}

}  // namespace submit_test
}  // namespace lockstep::start
