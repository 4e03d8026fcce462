// Finds the fastest plan for a model on a cluster.
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
  Memory memory;       // of the fullest rank
  std::string reason;  // in the words of a guide
};

struct SearchResult {
  std::vector<Candidate> best;  // fastest first
  int64_t considered = 0;
  int64_t out_of_memory = 0;  // by the memory estimate
  int64_t needless = 0;       // save memory by time, though the same plan without that fits
  int64_t bounded = 0;        // cannot be among the best, by their lower bound
  int64_t simulated = 0;
  std::map<std::string, std::string> refused;  // kinds of plans that were refused, and why
  std::optional<Candidate> smallest;  // the one that needs the least memory, where nothing fits
};

/// Complete over its grid (plan/grid.h) and deterministic. What saves memory by time (ZeRO 2 over
/// 1, recomputation, offloading) is taken only where the plan does not fit without. Candidates are
/// taken in the order of a lower bound of their step time (the kernels of an average rank), until
/// the bound is above the worst of the best.
SearchResult search(const SearchRequest& request);

/// Where nothing fits: twice as many devices of the slowest kind, and so on up to 4096, and the
/// fastest plan of the first number that would do.
struct LargerCluster {
  int devices = 0;
  Candidate plan;
};
std::optional<LargerCluster> find_larger_cluster(const SearchRequest& request);

enum class Place { kFirst, kLater };
/// Why a plan looks as it does, in the words of a guide: what fits on one device, and which links
/// what goes over. `place` is the plan's among the best.
std::string reason_of(const Job& job, const SearchRequest& request, Place place);

/// "46.703 billion parameters, 12.879 of them active".
std::string parameters_text(const model::ModelConfig& model);
/// "data 8 × tensor 2, zero 1, micro-batch 4, recompute none".
std::string plan_line(const Job& job);
/// The table of the best, what was refused, and what the search did.
std::string search_table(const SearchResult& result, const SearchRequest& request);
/// "float32", "16 bits with float32 masters, products of 94% of the blocks in 8 bits".
std::string precision_text(const Job& job);
/// Error (kConfig): products are in 8 bits, and a device makes none (CPUs emulate them).
void check_float8(const Job& job, const Cluster& cluster);
/// Where each millisecond and each gigabyte goes.
std::string explain(const Job& job, const Cluster& cluster);
/// What a plan's file says besides the plan.
struct PlanFile {
  std::string model;  // a folder; empty: the file names none
  std::string half = "bf16";
  std::string optimizer_folder, parameter_folder;  // of what is offloaded to files
  std::optional<model::Float8> float8;             // of Precision::kFloat8
};
/// A configuration that `lockstep train -c` takes, and `lockstep plan --explain` again.
std::string plan_yaml(const Job& job, const PlanFile& file = {});
/// The pipeline of one step as a Chrome or Perfetto trace (JSON), and as an SVG.
std::string plan_trace(const Job& job, const Cluster& cluster);
std::string plan_svg(const Job& job, const Cluster& cluster);

}  // namespace lockstep::plan
