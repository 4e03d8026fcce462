// Roofline budget of an RMSNorm block with a gated MLP on one GPU: bytes and floating-point
// operations of its kernels, and the minimum time on a device. Launch and wave overheads are
// excluded.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/machines/device.h"
#include "plan/workload/job.h"

namespace lockstep::plan {

/// Group of kernels in the forward and backward passes of a layer for one micro-batch.
struct BudgetLine {
  const char* what = "";
  int kernels = 0;
  double flops = 0;
  double bytes = 0;           // operand bytes, each read or written once
  bool is_of_update = false;  // runs once per step, independent of the number of micro-batches
};

/// Returns true if a budget can be computed: the blocks have a gated MLP, attention with rotary
/// embeddings, and RMSNorm before both, but no experts and no norms of heads.
bool has_layer_budget(const model::ModelConfig& model);

/// Returns the budget of one block on a rank, in 16 bits with float32 AdamW state. Tensor
/// parallelism splits the products.
std::vector<BudgetLine> layer_budget(const Job& job);
/// Returns the budget of the embedding, the last norm and the head with the loss.
std::vector<BudgetLine> head_budget(const Job& job);

/// Returns the sum over the lines. Each line counts the larger of its compute time at the device's
/// 16-bit rate and its transfer time at the memory bandwidth.
double roofline_seconds(const Device& device, std::span<const BudgetLine> lines);

/// Minimum step time on one rank for all layers, without communication.
struct RooflineStep {
  double seconds = 0;
  double tokens_per_second = 0;
  double utilisation = 0;  // fraction of the 16-bit peak; only counts the model's products
};
RooflineStep roofline_step(const Device& device, const Job& job);

/// Returns a table of the budget and of a step on an H100, an H200 and a B200. Empty if the model
/// has no budget.
std::string budget_table(const Job& job);

}  // namespace lockstep::plan
