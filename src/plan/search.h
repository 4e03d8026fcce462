// Finds the fastest plan for a model on a cluster.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/job.h"
#include "plan/machines/cluster.h"
#include "plan/memory.h"
#include "plan/simulate.h"

namespace lockstep::plan {

/// What is asked for; fields that are given are not searched.
struct SearchRequest {
  Job base;  // the model, sequence, global batch, precision and software
  Cluster cluster;
  std::optional<int> tensor, pipeline, context, zero_stage;
  std::optional<int> shard_ranks;  // 0: all share; not given: all, or those of a node
  std::optional<int64_t> micro_batch;
  std::optional<Recompute> recompute;
  std::optional<Offload> offload;
  std::optional<schedule::Kind> schedule;
  std::optional<int> virtual_stages;
  size_t best = 5;
};

struct Candidate {
  Job job;
  Step step;
  Memory memory;       // of the fullest rank
  std::string reason;  // in the words of a guide
};

struct SearchResult {
  std::vector<Candidate> best;  // fastest first
  int64_t considered = 0;
  int64_t out_of_memory = 0;  // by the memory estimate
  int64_t bounded = 0;        // cannot be among the best, by their lower bound
  int64_t simulated = 0;
  std::map<std::string, std::string> refused;  // kinds of plans that were refused, and why
  std::optional<Candidate> smallest;  // the one that needs the least memory, where nothing fits
};

/// Complete over its grid (docs/plan.md) and deterministic: candidates are taken in the order of a
/// lower bound of their step time (the products of the fullest stage, the optimizer), until the
/// bound is above the worst of the best.
SearchResult search(const SearchRequest& request);

/// "data 8 × tensor 2, zero 1, micro-batch 4, recompute none".
std::string plan_line(const Job& job);
/// The table of the best, what was refused, and what the search did.
std::string search_table(const SearchResult& result, const SearchRequest& request);
/// Where each millisecond and each gigabyte goes.
std::string explain(const Job& job, const Cluster& cluster);
/// A configuration that `lockstep train -c` takes.
std::string plan_yaml(const Job& job);
/// The pipeline of one step as a Chrome or Perfetto trace (JSON), and as an SVG.
std::string plan_trace(const Job& job, const Cluster& cluster);
std::string plan_svg(const Job& job, const Cluster& cluster);

/// A change that makes a job fit, with what it saves and costs.
struct Remedy {
  std::string change;
  double bytes = 0;    // of the fullest rank, after it
  double seconds = 0;  // of a step, after it
  bool fits = false;
};
/// The single changes that save memory, cheapest first; those that make it fit before those that do
/// not.
std::vector<Remedy> remedies(const Job& job, const Cluster& cluster);
/// Memory by kind and pipeline rank, as a table.
std::string memory_table(const Job& job, const Device& device);

}  // namespace lockstep::plan
