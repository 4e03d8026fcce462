// Enumerates the plans of a search.
#include "plan/grid.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/format.h"

namespace lockstep::plan {

namespace {

constexpr int64_t kMostSequences = 64;         // largest micro-batch
constexpr int64_t kLeastContextTokens = 1024;  // minimum tokens of a sequence per rank

// Returns the divisors of `number` up to `most`, sorted.
std::vector<int> divisors(int64_t number, int64_t most) {
  std::vector<int> result;
  for (int64_t value = 1; value <= std::min(number, most); ++value) {
    if (number % value == 0) {
      result.push_back(static_cast<int>(value));
    }
  }
  return result;
}

template <class T>
std::vector<T> given_or(const std::optional<T>& given, std::vector<T> all) {
  return given ? std::vector<T>{*given} : std::move(all);
}

class Grid {
 public:
  Grid(const SearchRequest& request, const GridVisitor& visitor)
      : request_(request),
        visitor_(visitor),
        devices_(request.cluster.devices()),
        node_size_(request.cluster.common_node_size()) {}

  void visit() {
    if (!sizes_go_with_devices()) {
      return;
    }
    for (const int tensor : tensor_sizes()) {
      for (const int context : context_sizes(tensor)) {
        for (const int pipeline : pipeline_sizes(tensor * context)) {
          const int data = devices_ / (tensor * context * pipeline);
          if (!request_.data || *request_.data == data) {
            visit_mesh({.pipeline = pipeline, .data = data, .context = context, .tensor = tensor});
          }
        }
      }
    }
    if (!uneven_.empty()) {
      const int64_t batch = request_.base.global_batch;
      const int largest = *uneven_.rbegin();
      visitor_.refuse(
          fmt::format("data {}", fmt::join(uneven_, ", ")),
          fmt::format(
              "the {} sequences of a step are not divisible by them; {} would be",
              batch,
              (batch + largest - 1) / largest * largest));
    }
  }

 private:
  bool sizes_go_with_devices() const {
    int64_t given = 1;
    std::string sizes;
    const auto count = [&](const char* axis, const std::optional<int>& size) {
      if (size) {
        given = std::min<int64_t>(given * *size, int64_t{1} << 32);
        sizes += fmt::format("{}{} {}", sizes.empty() ? "" : " × ", axis, *size);
      }
    };
    count("data", request_.data);
    count("tensor", request_.tensor);
    count("pipeline", request_.pipeline);
    count("context", request_.context);
    const bool all = request_.data && request_.tensor && request_.pipeline && request_.context;
    if (devices_ % given == 0 && (!all || devices_ == given)) {
      return true;
    }
    visitor_.refuse(sizes, fmt::format("{} devices cannot be split this way", devices_));
    return false;
  }

  std::vector<int> tensor_sizes() const {
    const int64_t heads = request_.base.model.heads;
    if (!request_.tensor) {
      if (devices_ > node_size_ && heads > node_size_) {
        visitor_.refuse(
            fmt::format("tensor above {}", node_size_),
            "it would span nodes, and every block communicates");
      }
      return divisors(node_size_, heads);
    }
    if (*request_.tensor > heads) {
      visitor_.refuse(
          fmt::format("tensor {}", *request_.tensor), fmt::format("the model has {} heads", heads));
      return {};
    }
    return {*request_.tensor};
  }

  std::vector<int> context_sizes(int tensor) const {
    const int64_t sequence = request_.base.data_length();
    if (request_.context) {
      return {*request_.context};
    }
    const int64_t most = std::max<int64_t>(1, sequence / kLeastContextTokens);
    if (devices_ / tensor > most) {
      visitor_.refuse(
          fmt::format("context above {}", most),
          fmt::format(
              "a rank would have fewer than {} of the {} tokens of a sequence",
              kLeastContextTokens,
              sequence));
    }
    return divisors(devices_ / tensor, most);
  }

  std::vector<int> pipeline_sizes(int others) const {
    const int64_t layers = request_.base.model.layers;
    if (request_.pipeline && *request_.pipeline > layers) {
      visitor_.refuse(
          fmt::format("pipeline {}", *request_.pipeline),
          fmt::format("the model has {} layers", layers));
      return {};
    }
    if (request_.pipeline) {
      return devices_ % (static_cast<int64_t>(others) * *request_.pipeline) == 0
                 ? std::vector<int>{*request_.pipeline}
                 : std::vector<int>{};
    }
    return divisors(devices_ / others, layers);
  }

  void visit_mesh(const mesh::Mesh& mesh) {
    const int64_t batch = request_.base.global_batch;
    if (mesh.data > batch) {
      visitor_.refuse(
          fmt::format("data above {}", batch),
          fmt::format(
              "the global batch has {} sequences, but each data rank needs at least one", batch));
      return;
    }
    if (batch % mesh.data != 0) {
      uneven_.insert(mesh.data);
      return;
    }
    Job job = request_.base;
    job.mesh = mesh;
    job.sequence_parallel = request_.sequence_parallel.value_or(true) && mesh.tensor > 1;
    for (const int experts : expert_sizes(mesh)) {
      job.expert_ranks = experts;
      for (const int64_t micro_batch : micro_batches(batch / mesh.data)) {
        job.micro_batch = micro_batch;
        visit_schedules(job);
      }
    }
  }

  // Returns the divisors of the number of data- and context-parallel ranks. In a search they must
  // also divide the number of experts.
  std::vector<int> expert_sizes(const mesh::Mesh& mesh) const {
    const int64_t experts = std::max<int64_t>(request_.base.model.experts.count, 1);
    const int ranks = mesh.data * mesh.context;
    if (request_.expert) {
      if (ranks % *request_.expert == 0 && *request_.expert <= experts) {
        return {*request_.expert};
      }
      visitor_.refuse(
          fmt::format("experts over {} of {} ranks", *request_.expert, ranks),
          "parallel.expert must divide the data- and context-parallel ranks, and be at most the "
          "number of experts");
      return {};
    }
    std::vector<int> sizes = divisors(experts, ranks);
    std::erase_if(sizes, [&](int size) { return ranks % size != 0 || size > node_size_; });
    return sizes.size() > 1 ? std::vector<int>{1, sizes.back()} : sizes;
  }

  std::vector<int64_t> micro_batches(int64_t share) const {
    std::vector<int64_t> result;
    for (const int sequences : divisors(share, request_.micro_batch.value_or(kMostSequences))) {
      const bool is_asked =
          (!request_.micro_batch || sequences == *request_.micro_batch) &&
          (!request_.micro_batches || share / sequences == *request_.micro_batches);
      if (is_asked) {
        result.push_back(sequences);
      }
    }
    if (result.empty()) {
      visitor_.refuse(
          fmt::format("{} sequences per data rank", share),
          fmt::format(
              "not divisible into {} micro-batches of {}",
              request_.micro_batches ? fmt::to_string(*request_.micro_batches) : "some",
              request_.micro_batch ? fmt::to_string(*request_.micro_batch) : "some"));
    }
    return result;
  }

  void visit_schedules(Job job) {
    using schedule::Kind;
    if (job.mesh.pipeline == 1) {
      job.schedule = Kind::kOneFOneB;
      job.virtual_stages = 1;
      visit_zero_stages(job);
      return;
    }
    for (const Kind kind : given_or(
             request_.schedule,
             {Kind::kOneFOneB, Kind::kInterleaved, Kind::kZbH1, Kind::kZbH2, Kind::kZbV})) {
      job.schedule = kind;
      if (!schedule_goes(job)) {
        const schedule::Schedule& listed = job.listed->schedule;
        visitor_.refuse(
            fmt::format("pipelines that are not compatible with {}", job.listed->path),
            fmt::format(
                "it has {} ranks and {} micro-batches", listed.ranks, listed.micro_batches));
        continue;
      }
      if (kind == Kind::kInterleaved && request_.schedule && request_.virtual_stages == 1) {
        visitor_.refuse("interleaved", "it requires parallel.virtual_stages=2 or more");
      }
      for (const int stages : stages_of_a_rank(kind)) {
        job.virtual_stages = stages;
        const bool is_split =
            request_.split.empty() || static_cast<int64_t>(request_.split.size()) == stages_of(job);
        if (stages_of(job) <= job.model.layers && is_split) {
          job.split = request_.split;
          visit_zero_stages(job);
        } else if (request_.schedule || request_.virtual_stages) {
          visitor_.refuse(
              fmt::format(
                  "{} of {} stages per rank on {} ranks",
                  schedule::kind_name(kind),
                  stages,
                  job.mesh.pipeline),
              is_split ? fmt::format("the model has {} layers", job.model.layers)
                       : fmt::format("the given split has {} stages", request_.split.size()));
        }
      }
    }
  }

  std::vector<int> stages_of_a_rank(schedule::Kind kind) const {
    const auto asked = [&](int stages) {
      // A given schedule has a fixed number of stages.
      const bool is_free = !request_.virtual_stages || request_.schedule;
      return is_free || *request_.virtual_stages == stages ? std::vector<int>{stages}
                                                           : std::vector<int>{};
    };
    if (kind == schedule::Kind::kZbV) {
      return asked(2);
    }
    if (kind == schedule::Kind::kFile) {
      return {request_.base.listed->schedule.virtual_stages()};
    }
    if (kind != schedule::Kind::kInterleaved) {
      return asked(1);
    }
    if (request_.virtual_stages) {
      return *request_.virtual_stages > 1 ? std::vector<int>{*request_.virtual_stages}
                                          : std::vector<int>{};
    }
    return {2, 4, 8};
  }

  void visit_zero_stages(Job job) {
    for (const int zero : given_or(request_.zero_stage, {0, 1, 2, 3})) {
      const bool is_given = request_.zero_stage.has_value();
      if (zero > 0 && job.mesh.data * job.mesh.context == 1 && !is_given) {
        continue;
      }
      if (zero > 1 && job.mesh.pipeline > 1 && !is_given) {
        visitor_.refuse(
            "zero 2 and 3 with a pipeline",
            "gradients and units would be communicated in every micro-batch");
        continue;
      }
      job.zero_stage = zero;
      for (const int sharing : zero == 0 ? std::vector<int>{0} : sharing_choices(job.mesh)) {
        job.shard_ranks = sharing;
        visit_savers(job);
      }
    }
  }

  // Returns the sizes of shard groups to search: all ranks with the same parameters, or those
  // within a node.
  std::vector<int> sharing_choices(const mesh::Mesh& mesh) const {
    const int all = mesh.data * mesh.context;
    if (request_.shard_ranks) {
      const int asked = *request_.shard_ranks;
      if (asked > 0 && all % asked != 0) {
        visitor_.refuse(
            fmt::format("states sharded over {} of {} ranks", asked, all),
            "parallel.shard_ranks must divide the ranks with the same parameters");
        return {};
      }
      return {asked};
    }
    const int in_node = node_size_ / mesh.tensor;
    return in_node > 1 && in_node < all && all % in_node == 0 ? std::vector<int>{0, in_node}
                                                              : std::vector<int>{0};
  }

  void visit_savers(Job job) {
    // Offloading has no effect on CPUs. Parameters are offloaded in units, which requires stage 3.
    std::vector<Offload> offloads{Offload::kNone};
    if (!job.software.device_is_host) {
      offloads.push_back(Offload::kOptimizer);
      if (job.zero_stage == 3) {
        offloads.push_back(Offload::kAll);
      }
    }
    for (const Recompute recompute : given_or(request_.recompute, recompute_choices(job.model))) {
      for (const Offload offload : given_or(request_.offload, offloads)) {
        job.recompute = recompute;
        job.offload = offload;
        visitor_.plan(job);
      }
    }
  }

  const SearchRequest& request_;
  const GridVisitor& visitor_;
  const int devices_;
  const int node_size_;
  std::set<int> uneven_;  // data-parallel sizes that do not divide the global batch
};

}  // namespace

std::vector<Recompute> recompute_choices(const model::ModelConfig& model) {
  if (model.mlp_dropout > 0) {
    return {Recompute::kNone, Recompute::kFull};
  }
  return {Recompute::kNone, Recompute::kActivation, Recompute::kFull};
}

void visit_grid(const SearchRequest& request, const GridVisitor& visitor) {
  Grid(request, visitor).visit();
}

}  // namespace lockstep::plan
