// Search for the fastest plan of a model on a cluster.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/float8.h"
#include "plan/grid.h"
#include "plan/machines/cluster.h"
#include "plan/memory/memory.h"
#include "plan/simulate.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

struct Candidate {
  Job job;
  Step step;
  Memory memory;       // memory of the largest rank
  std::string reason;  // explanation of the plan
};

struct SearchResult {
  std::vector<Candidate> best;  // fastest first
  int64_t considered = 0;
  int64_t out_of_memory = 0;  // plans that do not fit according to the memory estimate
  int64_t needless = 0;       // plans with unneeded memory savings
  int64_t bounded = 0;        // plans excluded by the lower bound of their step time
  int64_t simulated = 0;
  std::map<std::string, std::string> refused;  // excluded kinds of plans, with reasons
  std::optional<Candidate> smallest;           // plan with the least memory, if no plan fits
};

/// Finds the best plans. The search is exhaustive over the grid (plan/grid.h) and deterministic.
/// Memory savings that cost time (ZeRO 2 instead of 1, recomputation, offloading) are only used if
/// the plan does not fit without them. Candidates are simulated in order of a lower bound of their
/// step time (the kernels of an average rank), until the bound exceeds the time of the worst of the
/// best plans.
SearchResult search(const SearchRequest& request);

/// Smallest larger cluster on which some plan fits, with the fastest plan on it. Found by doubling
/// the devices of the slowest kind, up to 4096.
struct LargerCluster {
  int devices = 0;
  Candidate plan;
};
std::optional<LargerCluster> find_larger_cluster(const SearchRequest& request);

enum class Place { kFirst, kLater };
/// Explains a plan: what fits on one device, and which links each kind of parallelism uses. `place`
/// is the plan's position among the best.
std::string reason_of(const Job& job, const SearchRequest& request, Place place);

/// Returns the parameter counts as text: "46.703 billion parameters, 12.879 of them active".
std::string parameters_text(const model::ModelConfig& model);
/// Returns a one-line summary: "data 8 × tensor 2, zero 1, micro-batch 4, recompute none".
std::string plan_line(const Job& job);
/// Returns a table of the best plans, followed by excluded kinds and search statistics.
std::string search_table(const SearchResult& result, const SearchRequest& request);
/// Returns the precision as text: "float32", "16 bits with float32 masters, matrix products of
/// 94% of the blocks in 8 bits".
std::string precision_text(const Job& job);
/// Throws Error (config) if the job uses 8-bit products on a device that does not support them.
/// CPUs emulate them.
void check_float8(const Job& job, const Cluster& cluster);
/// Returns a breakdown of step time and memory as text.
std::string explain(const Job& job, const Cluster& cluster);
/// Additional contents of a plan file.
struct PlanFile {
  std::string model;  // model folder; empty: none
  std::string half = "bf16";
  std::string optimizer_folder, parameter_folder;  // folders for device=nvme
  std::optional<model::Float8> float8;             // set for Precision::kFloat8
};
/// Returns a configuration file for `lockstep train -c` and `lockstep plan --explain`.
std::string plan_yaml(const Job& job, const PlanFile& file = {});
/// Return the pipeline of one step as a Chrome or Perfetto trace (JSON), and as an SVG.
std::string plan_trace(const Job& job, const Cluster& cluster);
std::string plan_svg(const Job& job, const Cluster& cluster);

}  // namespace lockstep::plan
