// Searches the grid for the fastest plan.
#include "plan/search.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep::plan {

namespace {

struct Bounded {
  Job job;
  double bound = 0;
  int64_t order = 0;  // position in the grid, used to break ties
};

class Searcher {
 public:
  explicit Searcher(const SearchRequest& request)
      : request_(request),
        cluster_(request.cluster),
        is_unequal_(request.cluster.unequal()) {}

  SearchResult run() {
    visit_grid(
        request_,
        {.plan = [&](const Job& job) { add(job); },
         .refuse = [&](const std::string& what,
                       const std::string& why) { result_.refused.try_emplace(what, why); }});
    std::sort(candidates_.begin(), candidates_.end(), [](const Bounded& a, const Bounded& b) {
      return a.bound != b.bound ? a.bound < b.bound : a.order < b.order;
    });
    for (const Bounded& candidate : candidates_) {
      if (result_.best.size() == request_.best &&
          candidate.bound >= result_.best.back().step.step_seconds) {
        ++result_.bounded;
        continue;
      }
      take(candidate.job);
    }
    Place place = Place::kFirst;
    for (Candidate& candidate : result_.best) {
      candidate.reason = reason_of(candidate.job, request_, place);
      place = Place::kLater;
    }
    return std::move(result_);
  }

 private:
  void add(const Job& of_grid) {
    ++result_.considered;
    Job job = with_split(of_grid);
    if (!fits(job, cluster_)) {
      ++result_.out_of_memory;
      const Memory memory = largest(estimate_memory(job)).peak;
      if (!result_.smallest || memory.total() < result_.smallest->memory.total()) {
        result_.smallest = Candidate{std::move(job), {}, memory, ""};
      }
      return;
    }
    if (is_needless(of_grid)) {
      ++result_.needless;
      return;
    }
    const double bound = lower_bound(job);
    candidates_.push_back({std::move(job), bound, result_.considered});
  }

  // Returns true if the job would also fit with one memory saving reduced by one step. Considers
  // only searched settings, for which the grid contains that other plan.
  bool is_needless(const Job& job) {
    const auto fits_with = [&](auto change) {
      Job changed = job;
      change(changed);
      return fits(with_split(changed), cluster_);
    };
    if (!request_.zero_stage && job.zero_stage == 2 &&
        fits_with([](Job& j) { j.zero_stage = 1; })) {
      return true;
    }
    const std::vector<Recompute> forms = recompute_choices(job.model);
    const auto form = std::find(forms.begin(), forms.end(), job.recompute);
    if (!request_.recompute && form != forms.begin() && form != forms.end() &&
        fits_with([&](Job& j) { j.recompute = *std::prev(form); })) {
      return true;
    }
    return !request_.offload && job.offload != Offload::kNone && fits_with([](Job& j) {
      j.offload = j.offload == Offload::kAll ? Offload::kOptimizer : Offload::kNone;
    });
  }

  using BlockKey = std::tuple<int, int, int64_t, Recompute, bool, int>;

  // Returns the settings that determine the time of a block.
  static BlockKey block_key(const Job& job) {
    return {
        job.mesh.tensor,
        job.mesh.context,
        job.micro_batch,
        job.recompute,
        job.sequence_parallel,
        job.expert_ranks};
  }

  // Returns a lower bound of step time: all blocks distributed evenly over the pipeline ranks of
  // the fastest devices.
  double lower_bound(const Job& job) {
    const auto [entry, is_new] = blocks_.try_emplace(block_key(job));
    if (is_new) {
      entry->second = std::numeric_limits<double>::infinity();
      const BlockCounts blocks = blocks_of(job.model);
      for (const NodeGroup& group : cluster_.groups) {
        entry->second = std::min(entry->second, blocks_seconds(job, cluster_, group, blocks).all());
      }
    }
    return entry->second / job.mesh.pipeline * static_cast<double>(job.micro_batches());
  }

  // Returns the job with the layers of each stage filled in if they are not given.
  Job with_split(Job job) {
    if (job.mesh.pipeline == 1 || !job.split.empty()) {
      return job;
    }
    if (is_unequal_) {
      job.split = unequal_split(job);
      return job;
    }
    auto [split, is_new] = splits_.try_emplace(stages_of(job));
    if (is_new) {
      split->second = split_layers(job);
    }
    job.split = split->second;
    return job;
  }

  // Times of pipeline stages on unequal devices, used to find the fastest split.
  struct UnequalStages {
    std::vector<size_t> rank;                // pipeline rank, [stage]
    std::vector<std::vector<double>> until;  // seconds of all preceding layers, [rank][layer]
    std::vector<double> edge;                // time of embedding and head, [stage]
    std::vector<int64_t> fastest;

    double seconds(size_t stage, int64_t first, int64_t end) const {
      return until[rank[stage]][end] - until[rank[stage]][first] + edge[stage];
    }
  };

  // Returns the approximate time of a pipeline: the sum over all stages, plus the slowest rank for
  // every further micro-batch.
  static double pipeline_seconds(
      const UnequalStages& stages, const std::vector<int64_t>& split, int64_t micro_batches) {
    double sum = 0;
    std::vector<double> of_rank(stages.until.size(), 0);
    int64_t first = 0;
    for (size_t stage = 0; stage < split.size(); ++stage) {
      const double seconds = stages.seconds(stage, first, first + split[stage]);
      sum += seconds;
      of_rank[stages.rank[stage]] += seconds;
      first += split[stage];
    }
    return sum + static_cast<double>(micro_batches - 1) * *std::ranges::max_element(of_rank);
  }

  // Improves a split by moving single layers while this reduces the time. Needed because a rank
  // runs all its stages, and with few micro-batches every stage counts, not only the slowest. If
  // `most` is given, no rank gets more than most[rank] layers.
  static void move_layers(
      const UnequalStages& stages,
      int64_t micro_batches,
      const std::vector<int64_t>& most,
      std::vector<int64_t>& split) {
    std::vector<int64_t> of_rank(stages.until.size(), 0);
    for (size_t stage = 0; stage < split.size(); ++stage) {
      of_rank[stages.rank[stage]] += split[stage];
    }
    const auto move = [&](size_t from, size_t to) {
      --split[from];
      ++split[to];
      --of_rank[stages.rank[from]];
      ++of_rank[stages.rank[to]];
    };
    double now = pipeline_seconds(stages, split, micro_batches);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t from = 0; from < split.size(); ++from) {
        for (size_t to = 0; to < split.size() && split[from] > 1; ++to) {
          const size_t rank = stages.rank[to];
          const bool is_full =
              !most.empty() && rank != stages.rank[from] && of_rank[rank] >= most[rank];
          if (from == to || is_full) {
            continue;
          }
          move(from, to);
          const double then = pipeline_seconds(stages, split, micro_batches);
          if (then < now * (1 - 1e-9)) {
            now = then;
            moved = true;
          } else {
            move(to, from);
          }
        }
      }
    }
  }

  // Returns stage times, cached by block settings and by the ranks of a stage.
  const UnequalStages& unequal_stages(const Job& job) {
    const auto [entry, is_new] = unequal_.try_emplace(
        {block_key(job), job.mesh.pipeline, job.schedule == schedule::Kind::kZbV, stages_of(job)});
    UnequalStages& stages = entry->second;
    if (!is_new) {
      return stages;
    }
    const int of_stage = job.mesh.data * job.mesh.context * job.mesh.tensor;
    const auto node_of = [&](int rank) -> const NodeGroup& {
      return cluster_.slowest_of(rank * of_stage, of_stage);
    };
    for (int rank = 0; rank < job.mesh.pipeline; ++rank) {
      std::array<double, kBlockKinds> block{};
      visit_blocks(blocks_of(job.model), [&](BlockKind kind, double /*count*/) {
        block[static_cast<size_t>(kind)] = block_seconds(job, cluster_, node_of(rank), kind).all();
      });
      std::vector<double>& until = stages.until.emplace_back(1, 0.0);
      for (int64_t layer = 0; layer < job.model.layers; ++layer) {
        until.push_back(
            until.back() + sum_blocks(blocks_of(job.model, layer, 1), [&](BlockKind kind) {
              return block[static_cast<size_t>(kind)];
            }));
      }
    }
    for (int64_t stage = 0; stage < stages_of(job); ++stage) {
      const int rank = rank_of_stage(job, stage);
      stages.rank.push_back(static_cast<size_t>(rank));
      const bool is_last = stage + 1 == stages_of(job);
      stages.edge.push_back(
          (stage == 0 ? embedding_seconds(job, cluster_, node_of(rank)).all() : 0) +
          (is_last ? head_seconds(job, cluster_, node_of(rank)).all() : 0));
    }
    stages.fastest = balance_layers(
        job.model.layers, stages_of(job), [&](int64_t stage, int64_t first, int64_t end) {
          return stages.seconds(static_cast<size_t>(stage), first, end);
        });
    move_layers(stages, job.micro_batches(), {}, stages.fastest);
    return stages;
  }

  // Returns the maximum number of layers of each stage, given the maximum most[rank] of each rank.
  static std::vector<int64_t> room_of_stages(
      const UnequalStages& stages, std::vector<int64_t> most) {
    std::vector<int64_t> to_come(most.size(), 0);
    for (const size_t rank : stages.rank) {
      ++to_come[rank];
    }
    std::vector<int64_t> room;
    for (const size_t rank : stages.rank) {
      room.push_back(most[rank] / to_come[rank]);
      most[rank] -= room.back();
      --to_come[rank];
    }
    return room;
  }

  // Returns the fastest split found by dynamic programming; if it does not fit, the fastest split
  // that fits.
  std::vector<int64_t> unequal_split(const Job& job) {
    const UnequalStages& stages = unequal_stages(job);
    Job fastest = job;
    fastest.split = stages.fastest;
    if (fits(fastest, cluster_)) {
      return fastest.split;
    }
    const std::vector<int64_t> most = most_blocks(job, cluster_);
    if (std::accumulate(most.begin(), most.end(), int64_t{0}) < job.model.layers) {
      return fastest.split;
    }
    const std::vector<int64_t> room = room_of_stages(stages, most);
    std::vector<int64_t> within = balance_layers(
        job.model.layers, stages_of(job), [&](int64_t stage, int64_t first, int64_t end) {
          return end - first > room[stage] ? std::numeric_limits<double>::infinity()
                                           : stages.seconds(static_cast<size_t>(stage), first, end);
        });
    if (within.empty()) {
      return fastest.split;
    }
    move_layers(stages, job.micro_batches(), most, within);
    return within;
  }

  void take(const Job& job) {
    ++result_.simulated;
    Candidate candidate{job, simulate(job, cluster_), largest(estimate_memory(job)).peak, ""};
    auto& best = result_.best;
    const auto place = std::upper_bound(
        best.begin(), best.end(), candidate, [](const Candidate& a, const Candidate& b) {
          return a.step.step_seconds < b.step.step_seconds;
        });
    best.insert(place, std::move(candidate));
    if (best.size() > request_.best) {
      best.pop_back();
    }
  }

  const SearchRequest& request_;
  const Cluster& cluster_;
  const bool is_unequal_;
  SearchResult result_;
  std::vector<Bounded> candidates_;
  std::map<int64_t, std::vector<int64_t>> splits_;  // by number of stages
  // The key also contains the pipeline's ranks and stages, and whether the stages form a V.
  std::map<std::tuple<BlockKey, int, bool, int64_t>, UnequalStages> unequal_;
  std::map<BlockKey, double> blocks_;  // seconds of one pass over all blocks on the fastest device
};

}  // namespace

SearchResult search(const SearchRequest& request) {
  return Searcher(request).run();
}

std::optional<LargerCluster> find_larger_cluster(const SearchRequest& request) {
  constexpr int kMost = 4096;
  SearchRequest larger = request;
  larger.best = 1;
  larger.data.reset();
  for (int devices = 2 * request.cluster.devices(); devices <= kMost; devices *= 2) {
    larger.cluster = uniform_cluster(request.cluster.slowest().device, devices);
    SearchResult found = search(larger);
    if (!found.best.empty()) {
      return LargerCluster{devices, std::move(found.best.front())};
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::plan
