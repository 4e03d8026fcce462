// Tests the search for plans.
#include "plan/search.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::plan {
namespace search_test {

SearchRequest request_of(const char* model, const char* device, int devices, int64_t batch) {
  SearchRequest request;
  request.base.model = model::preset(model);
  request.base.sequence = 1024;
  request.base.global_batch = batch;
  request.cluster = uniform_cluster(find_device(device), devices);
  return request;
}

// Exhaustive search with plain loops over every size: the fastest plan that fits.
class Exhaustion {
 public:
  explicit Exhaustion(const SearchRequest& request) : request_(request) {}

  double fastest() {
    const int devices = request_.cluster.devices();
    const model::ModelConfig& model = request_.base.model;
    for (int tensor = 1; tensor <= std::min<int64_t>(devices, model.heads); ++tensor) {
      for (int context = 1; context * 1024 <= request_.base.sequence; ++context) {
        for (int pipeline = 1; pipeline <= model.layers; ++pipeline) {
          const int others = tensor * context * pipeline;
          const bool in_node = request_.cluster.groups[0].devices_per_node % tensor == 0;
          if (in_node && devices % others == 0) {
            try_mesh({pipeline, devices / others, context, tensor});
          }
        }
      }
    }
    return fastest_;
  }

 private:
  void try_mesh(const mesh::Mesh& mesh) {
    for (int64_t micro_batch = 1; micro_batch <= 64; ++micro_batch) {
      if (request_.base.global_batch % (micro_batch * mesh.data) != 0) {
        continue;
      }
      for (const int zero : {0, 1, 2, 3}) {
        if (zero > 1 && mesh.pipeline > 1) {
          continue;
        }
        const int in_node = request_.cluster.groups[0].devices_per_node / mesh.tensor;
        for (const int sharing : {0, in_node}) {
          if (sharing > 0 && (zero == 0 || mesh.data * mesh.context % sharing != 0)) {
            continue;
          }
          Job job = request_.base;
          job.mesh = mesh;
          job.micro_batch = micro_batch;
          job.sequence_parallel = mesh.tensor > 1;
          job.zero_stage = zero;
          job.shard_ranks = sharing;
          try_schedules(job);
        }
      }
    }
  }

  void try_schedules(Job job) {
    using schedule::Kind;
    if (job.mesh.pipeline == 1) {
      return try_savers(job);
    }
    for (const Kind kind : {Kind::kOneFOneB, Kind::kZbH1, Kind::kZbH2, Kind::kZbV}) {
      job.schedule = kind;
      job.virtual_stages = kind == Kind::kZbV ? 2 : 1;
      if (job.virtual_stages * job.mesh.pipeline <= job.model.layers) {
        try_savers(job);
      }
    }
    job.schedule = Kind::kInterleaved;
    for (job.virtual_stages = 2; job.virtual_stages <= 8; job.virtual_stages *= 2) {
      if (job.virtual_stages * job.mesh.pipeline <= job.model.layers) {
        try_savers(job);
      }
    }
  }

  void try_savers(Job job) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kActivation, Recompute::kFull}) {
      for (const Offload offload : {Offload::kNone, Offload::kOptimizer, Offload::kAll}) {
        job.recompute = recompute;
        job.offload = offload;
        if ((offload != Offload::kAll || job.zero_stage == 3) && fits(job, request_.cluster)) {
          fastest_ = std::min(fastest_, simulate(job, request_.cluster).step_seconds);
        }
      }
    }
  }

  const SearchRequest& request_;
  double fastest_ = std::numeric_limits<double>::infinity();
};

TEST(Search, FindsTheFastestOfPlainLoops) {
  for (const SearchRequest& request :
       {request_of("gpt2-medium", "rtx-4090", 8, 96),   // must save memory
        request_of("gpt2-large", "titan-rtx", 12, 24),  // nodes of four with slow links
        request_of("tinyllama-1.1b", "v100-16gb", 6, 12),
        request_of("gpt2", "h100-80gb", 3, 7)}) {  // an odd number, and a batch that is not
                                                   // divisible by it
    const SearchResult found = search(request);
    ASSERT_FALSE(found.best.empty());
    EXPECT_DOUBLE_EQ(found.best[0].step.step_seconds, Exhaustion(request).fastest())
        << search_table(found, request);
    EXPECT_LT(found.simulated, found.considered / 2);
  }
}

TEST(Search, EveryPlanHasTheGlobalBatch) {
  for (const int64_t batch : {1, 6, 7, 37, 96}) {
    const SearchRequest request = request_of("gpt2", "a100-80gb", 6, batch);
    for (const Candidate& candidate : search(request).best) {
      const Job& job = candidate.job;
      EXPECT_EQ(job.micro_batch * job.micro_batches() * job.mesh.data, batch) << plan_line(job);
      EXPECT_EQ(job.mesh.ranks(), 6);
    }
  }
}

TEST(Search, KeepsEverySizeThatIsGiven) {
  SearchRequest request = request_of("gpt2", "h100-80gb", 8, 48);
  request.data = 2;
  request.pipeline = 2;
  request.micro_batch = 3;
  request.virtual_stages = 3;
  request.sequence_parallel = false;
  const SearchResult found = search(request);
  ASSERT_FALSE(found.best.empty());
  for (const Candidate& candidate : found.best) {
    const Job& job = candidate.job;
    EXPECT_EQ(job.mesh.data * 100 + job.mesh.pipeline * 10 + job.mesh.tensor, 222);
    EXPECT_EQ(job.micro_batch, 3);
    EXPECT_EQ(job.micro_batches(), 8);
    EXPECT_EQ(job.schedule, schedule::Kind::kInterleaved);
    EXPECT_EQ(job.virtual_stages, 3);
    EXPECT_FALSE(job.sequence_parallel);
  }
  request.micro_batches = 4;
  EXPECT_TRUE(search(request).best.empty());  // 2 x 3 x 4 is not 48
}

TEST(Search, SaysWhyWhatIsGivenDoesNotGo) {
  const auto reasons = [](const auto& change) {
    SearchRequest request = request_of("gpt2", "h100-80gb", 8, 32);
    change(request);
    const SearchResult found = search(request);
    EXPECT_EQ(found.considered, 0);
    std::string text;
    for (const auto& [what, why] : found.refused) {
      text += what + ": " + why + "\n";
    }
    return text;
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(reasons([](SearchRequest& r) { r.data = 3; }), "data 3: 8 devices cannot be split this way");
  has(reasons([](SearchRequest& r) {
        r.data = 2;
        r.tensor = r.pipeline = r.context = 1;
      }),
      "8 devices cannot be split this way");
  has(reasons([](SearchRequest& r) {
        r.cluster = uniform_cluster(find_device("h100"), 16);
        r.tensor = 16;
      }),
      "the model has 12 heads");
  has(reasons([](SearchRequest& r) {
        r.cluster = uniform_cluster(find_device("h100"), 16);
        r.pipeline = 16;
      }),
      "the model has 12 layers");
  has(reasons([](SearchRequest& r) { r.micro_batch = 3; }),
      "not divisible into some micro-batches of 3");
  has(reasons([](SearchRequest& r) {
        r.pipeline = 8;
        r.schedule = schedule::Kind::kInterleaved;
        r.virtual_stages = 2;
      }),
      "the model has 12 layers");
  has(reasons([](SearchRequest& r) {
        r.base.global_batch = 5;
        r.data = 8;
      }),
      "the global batch has 5 sequences");
  has(reasons([](SearchRequest& r) {
        r.base.global_batch = 9;
        r.data = 8;
      }),
      "are not divisible by them; 16 would be");
}

TEST(Search, TakesWhatSavesMemoryOnlyWhereItIsShort) {
  const SearchRequest roomy = request_of("gpt2", "h100-80gb", 8, 64);
  for (const Candidate& candidate : search(roomy).best) {
    EXPECT_EQ(candidate.job.recompute, Recompute::kNone);
    EXPECT_EQ(candidate.job.offload, Offload::kNone);
    EXPECT_NE(candidate.job.zero_stage, 2);
  }
  SearchRequest asked = roomy;
  asked.recompute = Recompute::kFull;
  asked.zero_stage = 2;
  const SearchResult found = search(asked);
  EXPECT_EQ(found.best.at(0).job.recompute, Recompute::kFull);
  EXPECT_NE(found.best[0].reason.find("recomputes, as requested"), std::string::npos);
}

// The second device has the same rates as the first, with a tenth of the memory.
Job best_beside_a_small_device(schedule::Kind kind) {
  SearchRequest request = request_of("gpt2-xl", "h100-80gb", 1, 8);
  request.cluster = parse_cluster(
      "nodes:\n  - {devices: 1, device: h100-80gb}\n  - {devices: 1, device: {like: h100-80gb, "
      "name: small, memory_gb: 12}}\n",
      "c");
  request.pipeline = 2;
  request.schedule = kind;
  request.recompute = Recompute::kNone;
  request.offload = Offload::kNone;
  const Job best = search(request).best.at(0).job;
  EXPECT_TRUE(fits(best, request.cluster));
  return best;
}

TEST(Search, ASmallDeviceGetsTheLayersThatItHolds) {
  const auto one = best_beside_a_small_device(schedule::Kind::kOneFOneB).split;
  EXPECT_GT(one.at(0), 2 * one.at(1));
  const auto two = best_beside_a_small_device(schedule::Kind::kZbV).split;
  EXPECT_GT(two.at(0) + two.at(3), 2 * (two.at(1) + two.at(2)));
}

TEST(Search, SplitsUnequalDevicesAsWellAsAnySplit) {
  SearchRequest request = request_of("gpt2", "h100-80gb", 3, 12);
  request.cluster = parse_cluster(
      "nodes:\n  - {devices: 1, device: h100-80gb}\n  - {devices: 1, device: v100-32gb}\n"
      "  - {devices: 1, device: a100-40gb}\n",
      "c");
  request.pipeline = 3;
  request.schedule = schedule::Kind::kOneFOneB;
  request.micro_batch = 2;
  const SearchResult found = search(request);
  ASSERT_FALSE(found.best.empty());
  double fastest = std::numeric_limits<double>::infinity();
  for (int64_t first = 1; first <= 10; ++first) {
    for (int64_t second = 1; first + second <= 11; ++second) {
      Job job = found.best[0].job;
      job.split = {first, second, 12 - first - second};
      fastest = std::min(fastest, simulate(job, request.cluster).step_seconds);
    }
  }
  EXPECT_LE(found.best[0].step.step_seconds, fastest * 1.01) << plan_line(found.best[0].job);
}

TEST(Search, SplitsSeveralStagesOfUnequalRanksAsWellAsAnySplit) {
  SearchRequest request = request_of("gpt2", "h100-80gb", 2, 12);
  request.cluster = parse_cluster(
      "nodes:\n  - {devices: 1, device: h100-80gb}\n  - {devices: 1, device: v100-32gb}\n", "c");
  request.pipeline = 2;
  request.micro_batch = 2;
  request.recompute = Recompute::kNone;
  request.virtual_stages = 2;
  for (const auto kind : {schedule::Kind::kInterleaved, schedule::Kind::kZbV}) {
    request.schedule = kind;
    const SearchResult found = search(request);
    ASSERT_FALSE(found.best.empty());
    double fastest = std::numeric_limits<double>::infinity();
    for (int64_t first = 1; first <= 9; ++first) {
      for (int64_t second = 1; first + second <= 10; ++second) {
        for (int64_t third = 1; first + second + third <= 11; ++third) {
          Job job = found.best[0].job;
          job.split = {first, second, third, 12 - first - second - third};
          fastest = std::min(fastest, simulate(job, request.cluster).step_seconds);
        }
      }
    }
    EXPECT_LE(found.best[0].step.step_seconds, fastest * 1.02) << plan_line(found.best[0].job);
  }
}

TEST(Search, OffloadsNoMoreThanTheHostHolds) {
  SearchRequest request = request_of("llama2-70b", "rtx-4090", 2, 4);
  EXPECT_TRUE(search(request).best.empty());  // 550 GB per device would be offloaded to the host
  const std::string node =
      "nodes: [{devices: 2, device: {like: rtx-4090, name: large, host_memory_gb: 600}}]";
  request.cluster = parse_cluster(node, "c");
  const SearchResult found = search(request);
  ASSERT_FALSE(found.best.empty());
  EXPECT_EQ(found.best[0].job.offload, Offload::kAll);
}

TEST(Reasons, AreAGuides) {
  const auto has = [](const Candidate& candidate, const char* part) {
    EXPECT_NE(candidate.reason.find(part), std::string::npos) << candidate.reason;
  };
  const SearchResult small = search(request_of("gpt2", "h100-80gb", 8, 64));
  has(small.best.at(0), "fits on one device");
  has(small.best[0], "only data parallelism");
  SearchRequest request = request_of("llama2-70b", "h100-80gb", 64, 64);
  request.tensor = 16;
  const SearchResult slow = search(request);
  has(slow.best.at(0), "tensor over the slow links between nodes");
  SearchRequest asked = request_of("gpt2", "h100-80gb", 8, 64);
  asked.pipeline = 2;
  has(search(asked).best.at(0), "and is split as requested");
  request.tensor = 8;
  request.pipeline = 8;
  const SearchResult large = search(request);
  has(large.best.at(0), "does not fit on one device");
  has(large.best[0], "its largest layer does");
  has(large.best[0], "pipeline over the slow links between nodes");
  has(large.best[0], "tensor within the node's fast links");
  EXPECT_LT(large.best[0].step.step_seconds, slow.best[0].step.step_seconds);
  SearchRequest tiny = request_of("llama2-70b", "v100-16gb", 512, 512);
  tiny.base.sequence = 8192;
  const SearchResult found = search(tiny);
  has(found.best.at(0), "nor does its largest layer");
}

}  // namespace search_test
}  // namespace lockstep::plan
