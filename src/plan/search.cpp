#include "plan/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/format.h"

namespace lockstep::plan {

namespace {

std::vector<int> powers_up_to(int64_t most) {
  std::vector<int> result;
  for (int64_t value = 1; value <= most; value *= 2) {
    result.push_back(static_cast<int>(value));
  }
  return result;
}

struct Bounded {
  Job job;
  double bound = 0;
  int64_t order = 0;  // of the grid: ties are broken by it
};

class Searcher {
 public:
  explicit Searcher(const SearchRequest& request) : request_(request), cluster_(request.cluster) {}

  SearchResult run() {
    enumerate();
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
    for (Candidate& candidate : result_.best) {
      candidate.reason = reason(candidate.job);
    }
    return std::move(result_);
  }

 private:
  void refuse(const std::string& what, const std::string& why) {
    result_.refused.try_emplace(what, why);
  }

  void enumerate() {
    const int devices = cluster_.devices();
    const model::ModelConfig& model = request_.base.model;
    const NodeGroup& node = cluster_.slowest();
    for (const int tensor : choices(request_.tensor, powers_up_to(devices))) {
      if (tensor > model.heads) {
        refuse(
            fmt::format("tensor {} and more", tensor),
            fmt::format("the model has {} heads", model.heads));
        break;
      }
      if (tensor > node.devices_per_node && !request_.tensor) {
        refuse(
            fmt::format("tensor {} and more", tensor),
            fmt::format(
                "it would leave the node of {}, and its collectives are in every block",
                node.devices_per_node));
        break;
      }
      for (const int context : choices(
               request_.context,
               powers_up_to(std::max<int64_t>(1, request_.base.data_length() / 4096)))) {
        for (int pipeline = 1; pipeline <= std::min<int64_t>(devices, model.layers); ++pipeline) {
          if (request_.pipeline && *request_.pipeline != pipeline) {
            continue;
          }
          if (devices % (static_cast<int64_t>(tensor) * context * pipeline) == 0) {
            enumerate_mesh(
                {.pipeline = pipeline,
                 .data = devices / tensor / context / pipeline,
                 .context = context,
                 .tensor = tensor});
          }
        }
      }
    }
  }

  void enumerate_mesh(const mesh::Mesh& mesh) {
    const int64_t batch = request_.base.global_batch;
    if (mesh.data > batch) {
      refuse(
          fmt::format("data above {}", batch),
          fmt::format("the global batch has {} sequences, and each data rank needs one", batch));
      return;
    }
    const std::vector<int> micros = request_.micro_batch
                                        ? std::vector<int>{static_cast<int>(*request_.micro_batch)}
                                        : powers_up_to(std::min<int64_t>(64, batch / mesh.data));
    for (const int micro : micros) {
      Job job = request_.base;
      job.mesh = mesh;
      job.micro_batch = micro;
      job.sequence_parallel = mesh.tensor > 1;
      if (job.micro_batches() * micro * mesh.data > batch + micro * mesh.data - 1) {
        continue;
      }
      for (const int zero : choices(request_.zero_stage, {0, 1, 2, 3})) {
        if (zero > 0 && mesh.data * mesh.context == 1) {
          continue;
        }
        if (zero > 1 && mesh.pipeline > 1) {
          refuse(
              "zero 2 and 3 under a pipeline",
              "gradients and units would be moved for every micro-batch");
          continue;
        }
        job.zero_stage = zero;
        for (const int sharing : zero == 0 ? std::vector<int>{0} : sharing_choices(mesh)) {
          job.shard_ranks = sharing;
          enumerate_schedules(job);
        }
      }
    }
  }

  // All that hold the same parameters, or those of them in a node.
  std::vector<int> sharing_choices(const mesh::Mesh& mesh) {
    const int all = mesh.data * mesh.context;
    if (request_.shard_ranks) {
      const int asked = *request_.shard_ranks;
      if (asked > 0 && all % asked != 0) {
        refuse(
            fmt::format("states shared by {} of {} ranks", asked, all),
            "parallel.shard_ranks must divide the ranks that hold the same parameters");
        return {};
      }
      return {asked};
    }
    const int in_node = cluster_.slowest().devices_per_node / mesh.tensor;
    return in_node > 1 && in_node < all && all % in_node == 0 ? std::vector<int>{0, in_node}
                                                              : std::vector<int>{0};
  }

  void enumerate_schedules(Job job) {
    using schedule::Kind;
    if (job.mesh.pipeline == 1) {
      job.schedule = Kind::kOneFOneB;
      job.virtual_stages = 1;
      enumerate_memory(job);
      return;
    }
    const int64_t layers = job.model.layers;
    for (const Kind kind : choices(
             request_.schedule,
             {Kind::kOneFOneB, Kind::kInterleaved, Kind::kZbH1, Kind::kZbH2, Kind::kZbV})) {
      job.schedule = kind;
      const std::vector<int> virtual_stages = kind == Kind::kInterleaved ? std::vector<int>{2, 4, 8}
                                              : kind == Kind::kZbV       ? std::vector<int>{2}
                                                                         : std::vector<int>{1};
      for (const int v : kind == Kind::kInterleaved
                             ? choices(request_.virtual_stages, virtual_stages)
                             : virtual_stages) {
        if (static_cast<int64_t>(v) * job.mesh.pipeline <= layers) {
          job.virtual_stages = v;
          enumerate_memory(job);
        }
      }
    }
  }

  void enumerate_memory(Job job) {
    for (const Recompute recompute :
         choices(request_.recompute, {Recompute::kNone, Recompute::kFull})) {
      for (const Offload offload :
           choices(request_.offload, {Offload::kNone, Offload::kOptimizer})) {
        job.recompute = recompute;
        job.offload = offload;
        add(job);
      }
    }
  }

  void add(Job job) {
    ++result_.considered;
    const std::string key = fmt::format(
        "{} {} {} {} {}",
        job.mesh.tensor,
        job.mesh.context,
        job.micro_batch,
        static_cast<int>(job.recompute),
        0);
    auto [entry, fresh] = blocks_.try_emplace(key);
    if (fresh) {
      entry->second = fastest_blocks(job);
    }
    if (cluster_.unequal() && job.mesh.pipeline > 1 && job.virtual_stages == 1) {
      job.split = unequal_split(job);
    }
    if (job.split.empty() && job.mesh.pipeline > 1) {
      auto [split, is_new] = splits_.try_emplace(stages_of(job));
      if (is_new) {
        split->second = split_layers(job);
      }
      job.split = split->second;
    }
    const Memory memory = largest(estimate_memory(job)).peak;
    if (!result_.smallest || memory.total() < result_.smallest->memory.total()) {
      result_.smallest = Candidate{job, {}, memory, ""};
    }
    if (!fits(job, cluster_)) {
      ++result_.out_of_memory;
      return;
    }
    // At least: the blocks of an average rank (the fullest takes no less), by the fastest devices
    // there are.
    const double bound =
        entry->second / job.mesh.pipeline * static_cast<double>(job.micro_batches());
    candidates_.push_back({std::move(job), bound, result_.considered});
  }

  double fastest_blocks(const Job& job) const {
    const BlockCounts blocks = blocks_of(job.model);
    double seconds = std::numeric_limits<double>::infinity();
    for (const NodeGroup& group : cluster_.groups) {
      seconds = std::min(seconds, blocks_seconds(job, cluster_, group, blocks).all());
    }
    return seconds;
  }

  std::vector<int64_t> unequal_split(const Job& job) const {
    std::vector<std::array<double, kBlockKinds>> block(job.mesh.pipeline);
    std::vector<double> edge;
    const int of_stage = job.mesh.data * job.mesh.context * job.mesh.tensor;
    for (int rank = 0; rank < job.mesh.pipeline; ++rank) {
      const NodeGroup& node = cluster_.slowest_of(rank * of_stage, of_stage);
      visit_blocks(blocks_of(job.model), [&](BlockKind kind, double /*count*/) {
        block[rank][static_cast<size_t>(kind)] = block_seconds(job, cluster_, node, kind).all();
      });
      edge.push_back(rank + 1 == job.mesh.pipeline ? head_seconds(job, cluster_, node).all() : 0);
    }
    return balance_layers(
        job.model.layers, job.mesh.pipeline, [&](int64_t stage, int64_t first, int64_t end) {
          return sum_blocks(
                     blocks_of(job.model, first, end - first),
                     [&](BlockKind kind) { return block[stage][static_cast<size_t>(kind)]; }) +
                 edge[stage];
        });
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

  // Why a plan looks as it does, by asking whether simpler ones would fit.
  std::string reason(const Job& job) const {
    const double room = usable_bytes(cluster_.slowest().device);
    Job one = job;
    one.mesh = {};
    one.zero_stage = 0;
    one.recompute = Recompute::kNone;
    one.offload = Offload::kNone;
    one.micro_batch = 1;
    one.global_batch = 1;
    one.schedule = schedule::Kind::kOneFOneB;
    one.virtual_stages = 1;
    one.split.clear();
    const double alone = largest(estimate_memory(one)).peak.total();
    std::string text;
    if (alone <= room) {
      text = job.mesh.tensor * job.mesh.pipeline == 1
                 ? "fits on one device: data parallel alone"
                 : "fits on one device, yet splitting it is faster";
    } else {
      const Memory memory = largest(estimate_memory(one)).peak;
      const double block = (memory.parameters + memory.gradients + memory.optimizer) /
                           static_cast<double>(job.model.layers);
      text = fmt::format("does not fit on one device ({:.0f} GB)", alone / 1e9);
      text += block > room ? ", nor does its largest block" : "";
      text += job.zero_stage > 0 && job.mesh.data > 1
                  ? fmt::format(
                        ": states shared by zero {}{}",
                        job.zero_stage,
                        job.shard_ranks > 0 ? " within the node, replicas across" : "")
                  : "";
    }
    if (job.mesh.tensor > 1) {
      text += "; tensor within the node's fast links";
    }
    if (job.mesh.pipeline > 1) {
      text += "; pipeline over the slow ones";
    }
    text += job.recompute == Recompute::kFull ? "; recomputes to make room" : "";
    text += job.offload != Offload::kNone ? "; optimizer in host memory to make room" : "";
    return text;
  }

  template <class T>
  static std::vector<T> choices(const std::optional<T>& given, std::vector<T> all) {
    return given ? std::vector<T>{*given} : std::move(all);
  }

  const SearchRequest& request_;
  const Cluster& cluster_;
  SearchResult result_;
  std::vector<Bounded> candidates_;
  std::map<int64_t, std::vector<int64_t>> splits_;  // layers of each stage, by their number
  std::map<std::string, double> blocks_;  // seconds of a pass of all, by what it depends on
};

}  // namespace

SearchResult search(const SearchRequest& request) {
  return Searcher(request).run();
}

}  // namespace lockstep::plan
