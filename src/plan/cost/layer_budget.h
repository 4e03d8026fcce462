// Roofline budget of a gated RMSNorm block on one GPU: bytes and floating-point operations of its
// kernels and the minimum time on a device, without kernel launches and waves.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/machines/device.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// One group of kernels in the forward and backward passes of a layer over one micro-batch.
struct BudgetLine {
  const char* what = "";
  int kernels = 0;
  double flops = 0;
  double bytes = 0;           // bytes of the operands, each read or written once
  bool is_of_update = false;  // once per step, independent of the number of micro-batches
};

/// Returns true if the blocks have a budget: a gated MLP, attention with rotary embeddings, and
/// RMSNorm before both; no experts and no norms of heads.
bool has_layer_budget(const model::ModelConfig& model);

/// Returns the budget of one block on a rank, in 16 bits, with AdamW's state in float32. Tensor
/// parallelism splits the products.
std::vector<BudgetLine> layer_budget(const Job& job);
/// Returns the budget of the parts outside the blocks: embedding, last norm, head with loss.
std::vector<BudgetLine> head_budget(const Job& job);

/// Returns the sum over lines of the larger of compute time at the device's 16-bit rate and
/// transfer time at its memory bandwidth.
double roofline_seconds(const Device& device, std::span<const BudgetLine> lines);

/// Minimum time of a step of one rank, all layers, without communication.
struct RooflineStep {
  double seconds = 0;
  double tokens_per_second = 0;
  double utilisation = 0;  // fraction of the 16-bit peak; counts only the model's products
};
RooflineStep roofline_step(const Device& device, const Job& job);

/// Returns a table of the budget, with a step on an H100, an H200 and a B200. Empty if the model
/// has no budget.
std::string budget_table(const Job& job);

}  // namespace lockstep::plan
