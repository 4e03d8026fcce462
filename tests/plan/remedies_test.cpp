// Tests changes that make a job fit into memory.
#include "plan/remedies.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "plan/memory/memory_table.h"
#include "plan/memory/phases.h"

namespace lockstep::plan {
namespace remedies_test {

Job job_of(const char* model, int data, int64_t micro_batch) {
  Job job;
  job.model = model::preset(model);
  job.sequence = 1024;
  job.micro_batch = micro_batch;
  job.mesh.data = data;
  job.global_batch = 2 * micro_batch * data;
  return job;
}

void expect_sound(const std::vector<Remedy>& found) {
  for (const Remedy& remedy : found) {
    std::set<std::string> keys;
    std::istringstream words(remedy.change);
    for (std::string word; words >> word;) {
      EXPECT_TRUE(keys.insert(word.substr(0, word.find('='))).second) << remedy.change;
    }
    EXPECT_GT(remedy.seconds, 0);
  }
}

TEST(Remedies, AreAsLittleAsWillDoTheCheapestFirst) {
  const Job job = job_of("gpt2-xl", 4, 8);
  const Cluster cluster = uniform_cluster(find_device("a100-40gb"), 4);
  ASSERT_FALSE(fits(job, cluster));
  const std::vector<Remedy> found = remedies(job, cluster);
  ASSERT_FALSE(found.empty());
  expect_sound(found);
  EXPECT_TRUE(found[0].fits);
  size_t micro_batches = 0;
  double before = 0;
  for (const Remedy& remedy : found) {
    if (remedy.fits) {
      EXPECT_GE(remedy.seconds, before);
      before = remedy.seconds;
      micro_batches += remedy.change.starts_with("training.per_device") ? 1 : 0;
    }
  }
  EXPECT_EQ(micro_batches, 1U);  // smaller values than necessary only cost time
}

TEST(Remedies, KeepTheGlobalBatch) {
  const Job job = job_of("gpt2-large", 8, 6);
  const std::vector<Remedy> found = remedies(job, uniform_cluster(find_device("titan-rtx"), 8));
  const auto has = [&](const std::string& change) {
    return std::any_of(
        found.begin(), found.end(), [&](const Remedy& r) { return r.change == change; });
  };
  expect_sound(found);
  // 96 sequences: with half as many data-parallel ranks, each has twice as many micro-batches.
  EXPECT_TRUE(
      has("parallel.tensor=2 parallel.sequence_parallel=true parallel.data=4 "
          "training.gradient_accumulation_steps=4"));
  EXPECT_TRUE(
      has("training.per_device_train_batch_size=3 "
          "training.gradient_accumulation_steps=4"));
}

TEST(Remedies, ArePairsWhereNoneIsEnough) {
  Job job = job_of("llama2-70b", 8, 8);
  job.zero_stage = 3;
  const Cluster cluster = uniform_cluster(find_device("h100-80gb"), 8);
  const std::vector<Remedy> found = remedies(job, cluster);
  expect_sound(found);
  ASSERT_FALSE(found.empty());
  ASSERT_TRUE(found[0].fits);
  // Two settings, neither of which is sufficient alone.
  EXPECT_NE(found[0].change.find("offload_optimizer.device=cpu"), std::string::npos);
  EXPECT_NE(found[0].change.find("parallel.tensor=4"), std::string::npos) << found[0].change;
}

TEST(Remedies, TakeWhatTheCallerKnows) {
  Job job = job_of("gpt2-xl", 1, 1);
  job.precision = Precision::kFloat32;
  job.software.weight_bytes = job.software.gradient_bytes = 4;
  Change half{"training.bf16=true", job};
  half.job.precision = Precision::kMixed16;
  half.job.software.optimizer_bytes = 2;
  const std::vector<Remedy> found =
      remedies(job, uniform_cluster(find_device("titan-rtx"), 1), {half});
  ASSERT_FALSE(found.empty());
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const Remedy& r) {
    return r.change == "training.bf16=true";
  }));
}

TEST(Remedies, SayWhatSavesMostWhereNothingIsEnough) {
  const std::vector<Remedy> found =
      remedies(job_of("llama2-70b", 1, 8), uniform_cluster(find_device("rtx-4090"), 1));
  ASSERT_GT(found.size(), 2U);
  EXPECT_FALSE(found[0].fits);
  EXPECT_LE(found[0].bytes, found[1].bytes);
}

TEST(Phases, TheBackwardPassIsThePeak) {
  Job job = job_of("gpt2-medium", 8, 4);
  for (const int zero : {0, 3}) {
    job.zero_stage = zero;
    const Memory peak = estimate_memory(job)[0].peak;
    const auto in = [&](Phase phase) { return memory_in(phase, job, peak); };
    EXPECT_EQ(in(Phase::kBackward).total(), peak.total());
    EXPECT_LT(in(Phase::kForward).total(), peak.total());
    EXPECT_LT(in(Phase::kUpdate).total(), in(Phase::kForward).total());
    const double states = peak.parameters + peak.gradients + peak.optimizer + peak.context;
    EXPECT_NEAR(in(Phase::kIdle).total(), states, 1e-6 * states);
    for (const Phase phase : kPhases) {
      EXPECT_EQ(in(phase).optimizer, peak.optimizer);
      EXPECT_GE(in(phase).fragmentation, -1e-3);
    }
  }
}

TEST(MemoryTable, TellsPhasesStagesAndLayers) {
  Job job = job_of("gpt2-xl", 4, 8);
  const Device& small = find_device("rtx-4090");
  const auto has = [&](const char* part) {
    const std::string table = memory_table(job, small);
    EXPECT_NE(table.find(part), std::string::npos) << table;
  };
  has("at the peak of each phase");
  has("between steps");
  has("48 layers × 1 micro-batches in flight");
  has("does NOT fit");
  job.mesh.pipeline = 4;
  has("stage 3");
  has("memory of stage 0 at the peak of each phase");
  job.mesh = {};
  job.offload = Offload::kAll;
  job.model = model::preset("llama2-70b");
  has("in host memory (77.3 GB per device): does NOT fit");
}

}  // namespace remedies_test
}  // namespace lockstep::plan
